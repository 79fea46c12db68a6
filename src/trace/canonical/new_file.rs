//! A file that takes its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::read::is_standard_input;
use crate::diag::{Error, Result};

/// Written without a name where the system can do that, else under a temporary one beside its
/// target; dropping it leaves the target as it was.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: Draft,
    target: PathBuf,
    named: PathBuf,
}

impl NewFile {
    /// Finds out, before work is done for it, whether a file can be written at `path`.
    pub(crate) fn check(path: &Path) -> Result<()> {
        Self::create(path).map(drop)
    }

    /// Starts a file that [`commit`](Self::commit) will put at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if is_standard_input(path) {
            let error = Error::new("a file is written, not standard output: found `-` as its name");
            return Err(error.help("./- is a file of that name"));
        }
        // A link stays a link: what it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.exists() && !target.is_file() {
            return Err(Error::new("cannot write: it exists and is no regular file")
                .in_file(path.display()));
        }
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if let Some(file) = unnamed::create(folder) {
            return Ok(Self { file: Draft::Unnamed(file), target, named: path.to_owned() });
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        #[cfg(unix)]
        let permissions = {
            use std::os::unix::fs::PermissionsExt;
            // As for any new file: readable by all, less the umask.
            fs::Permissions::from_mode(0o666)
        };
        #[cfg(unix)]
        builder.permissions(permissions);
        let file = builder
            .tempfile_in(folder)
            .map_err(|error| Error::io(path, "create the file", &without_path(&error)))?;
        Ok(Self { file: Draft::Named(file), target, named: path.to_owned() })
    }

    /// Gives the file its name, replacing what bore it.
    pub(crate) fn commit(self) -> Result<()> {
        let put = match self.file {
            Draft::Named(file) => file.persist(&self.target).map(drop).map_err(io::Error::from),
            Draft::Unnamed(file) => unnamed::put(&file, &self.target),
        };
        put.map_err(|error| Error::io(&self.named, "put the file in place", &error))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Draft::Named(file) => file.write(bytes),
            Draft::Unnamed(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Draft::Named(file) => file.flush(),
            Draft::Unnamed(file) => file.flush(),
        }
    }
}

/// The error without the temporary name that it ends with.
fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::other(text.split(" at path ").next().unwrap_or(&text))
}

/// How temporary names begin.
const PREFIX: &str = ".tonnage-";

/// The file until it has its name.
#[derive(Debug)]
enum Draft {
    /// It has another one, and is removed if all goes well or wrong, but not if the process is
    /// killed.
    Named(NamedTempFile),
    /// It has none, so the system removes it with the process, however that ends.
    Unnamed(File),
}

/// Files without a name.
#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::File;
    use std::io::{self, ErrorKind};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};

    /// A new file in a folder, `None` if the file system has no such files.
    pub(super) fn create(folder: &Path) -> Option<File> {
        // The way to its name leads through here.
        if !Path::new("/proc/self/fd").is_dir() {
            return None;
        }
        // As for any new file: readable by all, less the umask.
        let mode = Mode::from_bits_truncate(0o666);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        open(folder, flags, mode).ok().map(File::from)
    }

    /// Gives the file a name, replacing what bore it.
    pub(super) fn put(file: &File, target: &Path) -> io::Result<()> {
        let link = |path: &Path| {
            let origin = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(CWD, origin, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
        };
        match link(target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            done => return done,
        }
        // A name is taken away from another file only by a file that has one.
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        let named =
            builder.prefix(super::PREFIX).make_in(folder.unwrap_or(Path::new(".")), link)?;
        named.persist(target).map(drop).map_err(io::Error::from)
    }
}

/// Files without a name, of which this system has none.
#[cfg(not(target_os = "linux"))]
mod unnamed {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn create(_: &Path) -> Option<File> {
        None
    }

    pub(super) fn put(_: &File, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for text in ["first", "second"] {
            let before = fs::read_to_string(&path).ok();
            let mut file = NewFile::create(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).ok(), before);
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(entries(folder.path()), 1);
        }
        drop(NewFile::create(&path).unwrap());
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), entries(folder.path())),
            ("second".into(), 1)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn where_files_need_no_name_a_draft_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = NewFile::create(&folder.path().join("x")).unwrap();
        let named = usize::from(matches!(file.file, Draft::Named(_)));
        assert_eq!(entries(folder.path()), named);
    }
}
