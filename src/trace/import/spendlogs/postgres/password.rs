//! Where a password comes from if the URL holds none: `PGPASSWORD`, then libpq's password file.

use std::path::{Path, PathBuf};
use std::{env, fs};

use postgres::config::{Config, Host};

use crate::diag::{Error, Result};

/// The password for this connection, if there is one.
pub(super) fn find(config: &Config) -> Result<Option<String>> {
    if let Ok(password) = env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let Some(path) = file() else { return Ok(None) };
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().map_or("5432".to_owned(), u16::to_string);
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let password = entry(&text, [&host, &port, database, user]);
    match password {
        Some(_) if is_open_to_others(&path) => Err(Error::new(format!(
            "others may read the password file {}, so it is not used",
            path.display()
        ))
        .help("chmod 0600 it, or give the password in PGPASSWORD")),
        password => Ok(password),
    }
}

/// `PGPASSFILE`, or `.pgpass` in the home directory.
fn file() -> Option<PathBuf> {
    let given = env::var_os("PGPASSFILE").map(PathBuf::from);
    given.or_else(|| env::home_dir().map(|home| home.join(".pgpass")))
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_path: &Path) -> bool {
    false
}

/// The password of the first line `host:port:database:user:password` that fits.
fn entry(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [keys @ .., password] = &fields[..] else { return None };
        let fits = keys.len() == wanted.len()
            && keys.iter().zip(wanted).all(|(key, wanted)| key == "*" || key == wanted);
        fits.then(|| password.clone())
    })
}

/// The fields of a line; a backslash takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let plain = match character {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next(),
            other => Some(other),
        };
        if let Some(field) = fields.last_mut() {
            field.extend(plain);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_gives_the_password() {
        let file = "# db:5432:x:ana:comment\nshort:line\ndb:5432:x:eva:e\n*:*:x:ana:a\\:b\\\\:c\n\
                    *:*:*:*:last\n";
        let find = |wanted| entry(file, wanted);
        assert_eq!(find(["db", "5432", "x", "ana"]).as_deref(), Some("a:b\\:c"));
        assert_eq!(find(["db", "5432", "x", "eva"]).as_deref(), Some("e"));
        assert_eq!(find(["db", "5433", "x", "eva"]).as_deref(), Some("last"));
        assert_eq!(entry("db:5432:x:ana:p", ["other", "5432", "x", "ana"]), None);
    }
}
