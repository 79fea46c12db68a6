//! The text files of the repository, without what builds and tools leave in it.

use std::fs;
use std::path::Path;

/// One text file, its path relative to the root and with `/` on every platform.
pub struct TextFile {
    pub path: String,
    pub text: String,
}

/// Directories and files that are not part of the repository.
const LEFT_BEHIND: [&str; 4] = [".git", "target", ".venv", "__pycache__"];

/// All of them, in the order of their paths.
pub fn text_files() -> Vec<TextFile> {
    let mut files = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<TextFile>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let entry = entry.expect("a readable entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if LEFT_BEHIND.contains(&name.as_str()) || name.ends_with(".tmp") {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("a type of file");
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).expect("a readable file");
            // What is not UTF-8, or has a zero byte in it, is no text.
            if let Some(text) = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) {
                files.push(TextFile { path, text });
            }
        }
    }
}
