//! A small scenario with its trace in a folder of its own, and the program run there.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

pub const SCENARIO: &str = r#"name = "small"
trace = "t.csv"

[engine]
model = "Llama-3.1-8B"
gpu = "h100-sxm"
max_model_len = 8192
num_gpu_blocks_override = 600

[load]
kind = "developers"
developers = 6
pause_median_s = 20

[run]
warmup_s = 60
window_s = 900
"#;

/// Sessions of two tenants with turns, a shared prompt and a call that is beyond the cache.
const SESSIONS: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
@tools,,,,,,,,,,,,,0,320,,,
one,0,0,,0,user,0,0,m,web,,,@tools,320,1000,20,,ok
one,1,9,0,2,tool,0,0,m,web,,,0,1020,1500,110,,ok
one,2,60,1,40,user,1,0,m,web,,,1,1510,2000,30,,ok
two,0,5,,0,user,0,0,m,ops,,,@tools,320,800,140,,ok
two,1,8,0,1,tool,0,0,m,ops,,,0,900,4000,60,,ok
three,0,9,,0,user,0,0,m,web,,,@tools,320,3000,90,,ok
three,1,14,0,1,tool,0,0,m,web,,,0,3090,5000,40,,ok
three,2,30,1,9,user,1,0,m,web,,,1,5040,6000,80,,ok
";

pub fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    fs::write(folder.path().join("t.csv"), SESSIONS).unwrap();
    folder
}

pub fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).args(args);
    command
}
