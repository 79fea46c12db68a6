//! The notebooks run as they are, and the numbers that they state hold.

use std::path::Path;
use std::process::Command;

/// There is no Python, or its packages cannot be had.
const NO_PYTHON: i32 = 3;

#[test]
fn the_numbers_of_the_notebooks_hold() {
    let notebooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("notebooks");
    let done = Command::new(notebooks.join("run"))
        .env("TONNAGE", env!("CARGO_BIN_EXE_tonnage"))
        .env("TONNAGE_NOTEBOOKS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("notebooks"))
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.code() == Some(NO_PYTHON) && std::env::var_os("CI").is_none() {
        eprintln!("notebooks not tested: {said}");
        return;
    }
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{shown}\n{said}");
    for notebook in ["01_replay_a_week.py", "02_sweep_gpu_counts.py", "03_hit_rate_collapse.py"] {
        assert!(shown.contains(notebook), "{notebook} did not run: {shown}");
    }
}
