//! From a URL to a connection. The URL may be LiteLLM's own `DATABASE_URL`, which is Prisma's.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use postgres::config::{Config, Host, SslMode};
use postgres::{Client, NoTls};

use super::tls::{self, Verify};
use super::{DatabaseUrl, failure, password};
use crate::diag::{Error, Result};

/// How long a host may take to answer, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// After how much silence a host is asked whether it is still there, unless the URL says otherwise.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// What Prisma's URLs say of its pool and its cache; one connection has neither.
const OF_PRISMAS_POOL: [&str; 8] = [
    "connection_limit",
    "max_connection_lifetime",
    "max_idle_connection_lifetime",
    "pgbouncer",
    "pool_timeout",
    "single_use_connections",
    "socket_timeout",
    "statement_cache_size",
];

/// A database as it is called in messages, and what its URL says besides.
#[derive(Debug)]
pub(super) struct Place {
    /// `postgres://HOST:PORT/DATABASE`, without user and password.
    pub(super) name: String,
    /// The schema that Prisma's URLs name.
    pub(super) schema: Option<String>,
}

/// Connects.
pub(super) fn connect(url: &DatabaseUrl) -> Result<(Client, Place)> {
    let address = Address::read(&url.0)?;
    let mut config = address.config;
    let name = name(&config);
    let in_place = |error: Error| error.in_file(&name);
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(Error::new("the URL names no host")
            .help("for a Unix socket: postgres://USER@%2Fvar%2Frun%2Fpostgresql/DATABASE")
            .in_file(&name));
    }
    if config.get_password().is_none()
        && let Some(found) = password::find(&config).map_err(in_place)?
    {
        config.password(found);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if !address.sets_keepalive {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_application_name().is_none() {
        config.application_name("tonnage");
    }
    let connected = match address.verify {
        None => config.ssl_mode(SslMode::Disable).connect(NoTls),
        Some((mode, verify)) => {
            let connector = tls::connector(verify, address.roots.as_deref()).map_err(in_place)?;
            config.ssl_mode(mode).connect(connector)
        }
    };
    let client = connected.map_err(|error| in_place(failure::of_connecting(&error)))?;
    Ok((client, Place { name, schema: address.schema }))
}

/// What a URL says.
struct Address {
    config: Config,
    schema: Option<String>,
    /// Whether TLS may be used or must be, and what is checked then; nothing for no TLS.
    verify: Option<(SslMode, Verify)>,
    roots: Option<PathBuf>,
    sets_keepalive: bool,
}

impl Address {
    fn read(url: &str) -> Result<Self> {
        let (base, options) = url.split_at(options_start(url)?);
        let (mut kept, mut schema, mut roots) = (Vec::new(), None, None);
        let (mut mode, mut strict) = (None, false);
        for option in options.trim_start_matches('?').split('&').filter(|text| !text.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "schema" => schema = Some(decoded(value)?),
                "sslmode" => mode = Some(decoded(value)?),
                "sslrootcert" => roots = Some(PathBuf::from(decoded(value)?)),
                "sslaccept" => strict = value == "strict",
                "sslcert" | "sslkey" | "sslidentity" | "sslpassword" => {
                    return Err(Error::new("certificates of a client are not read")
                        .help("for the authority that signed the server's, use sslrootcert=FILE")
                        .in_field(key));
                }
                _ if OF_PRISMAS_POOL.contains(&key) => {}
                _ => kept.push(option),
            }
        }
        let rebuilt = match kept.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", kept.join("&")),
        };
        let config: Config = rebuilt.parse().map_err(|error| failure::of_url(&error))?;
        let from_surroundings = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let roots = roots.or_else(|| from_surroundings("PGSSLROOTCERT").map(PathBuf::from));
        let roots = roots.filter(|path| path.as_os_str() != "system");
        let mode = mode.or_else(|| from_surroundings("PGSSLMODE"));
        let verify = checks(mode.as_deref().unwrap_or("prefer"), strict, roots.is_some())?;
        let sets_keepalive = kept.iter().any(|option| option.starts_with("keepalives"));
        Ok(Self { config, schema, verify, roots, sets_keepalive })
    }
}

/// Where the options begin: at the `?` after the host, since a password may hold one.
fn options_start(url: &str) -> Result<usize> {
    let host = url.find('@').map_or(0, |at| at + 1);
    let start = url[host..].find('?').map_or(url.len(), |at| host + at);
    if url[host..start].contains('@') {
        return Err(Error::new("the URL has more than one `@` before its options")
            .help("in a user or password, write `@` as %40, `/` as %2F, `?` as %3F, `%` as %25"));
    }
    Ok(start)
}

/// What a mode asks for, by libpq's rules: a certificate is looked at from `verify-ca` on, and
/// with `require` if there is something to hold it against.
fn checks(mode: &str, strict: bool, has_roots: bool) -> Result<Option<(SslMode, Verify)>> {
    let checks = match mode {
        "disable" => return Ok(None),
        _ if strict => (SslMode::Require, Verify::ChainAndName),
        "prefer" => (SslMode::Prefer, Verify::Nothing),
        "require" if has_roots => (SslMode::Require, Verify::Chain),
        "require" => (SslMode::Require, Verify::Nothing),
        "verify-ca" => (SslMode::Require, Verify::Chain),
        "verify-full" => (SslMode::Require, Verify::ChainAndName),
        _ => {
            let allowed = "disable, prefer, require, verify-ca, verify-full";
            return Err(Error::found(mode, allowed).in_field("sslmode"));
        }
    };
    Ok(Some(checks))
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| Error::new("an option of the URL is not UTF-8"))
}

/// The database without user and password.
fn name(config: &Config) -> String {
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let ports = config.get_ports();
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) if host.contains(':') => format!("[{host}]:{port}"),
            Host::Tcp(host) => format!("{host}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    });
    let hosts: Vec<String> = hosts.collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Address {
        Address::read(url).unwrap()
    }

    fn refusal(url: &str) -> String {
        Address::read(url).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn names_hold_neither_user_nor_password() {
        for (url, expected) in [
            ("postgres://ana:secret@db.example/litellm", "postgres://db.example:5432/litellm"),
            ("postgresql://ana:s?c/r=t@[::1]:5433/x", "postgres://[::1]:5433/x"),
            ("postgres://ana@%2Frun%2Fpg/x?port=5444", "postgres:///run/pg:5432/x"),
            ("postgres://a:1,b:2/x", "postgres://a:1,b:2/x"),
        ] {
            assert_eq!(name(&read(url).config), expected);
        }
    }

    #[test]
    fn a_url_of_prisma_reads() {
        let url = "postgresql://llm:pw@db/litellm?schema=proxy&connection_limit=10&pool_timeout=60\
                   &pgbouncer=true&sslmode=require&sslaccept=strict&connect_timeout=3";
        let address = read(url);
        assert_eq!(address.schema.as_deref(), Some("proxy"));
        assert_eq!(address.verify, Some((SslMode::Require, Verify::ChainAndName)));
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    }

    #[test]
    fn modes_of_tls_are_libpqs() {
        let verify = |options: &str| read(&format!("postgres://db/x?{options}")).verify;
        assert_eq!(verify("sslmode=disable"), None);
        assert_eq!(verify("sslmode=prefer"), Some((SslMode::Prefer, Verify::Nothing)));
        assert_eq!(verify("sslmode=require"), Some((SslMode::Require, Verify::Nothing)));
        let with_roots = "sslmode=require&sslrootcert=ca.crt";
        assert_eq!(verify(with_roots), Some((SslMode::Require, Verify::Chain)));
        assert_eq!(verify("sslmode=verify-ca"), Some((SslMode::Require, Verify::Chain)));
        assert_eq!(verify("sslmode=verify-full"), Some((SslMode::Require, Verify::ChainAndName)));
        assert_eq!(read("postgres://db/x?sslrootcert=system&sslmode=verify-full").roots, None);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_without_the_password() {
        for (url, expected) in [
            ("postgres://ana:sec@ret@db/x", "more than one `@`"),
            ("postgres://ana:secret@db/x?sslmode=allow", "found `allow`"),
            ("postgres://ana:secret@db/x?sslcert=a.crt", "certificates of a client"),
            ("postgres://ana:secret@db/x?colour=red", "unknown option `colour`"),
            ("postgres://ana:secret@db:port/x", "invalid value for option `port`"),
        ] {
            let text = refusal(url);
            assert!(text.contains(expected) && !text.contains("sec"), "{url}: {text}");
        }
    }
}
