//! A real PostgreSQL server of the tests' own, by the script `tests/postgres-server`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use postgres::{Client, NoTls};

/// The password of the server's superuser, which connections over TCP need.
pub const PASSWORD: &str = "tonnage";

/// The script's exit code if there is no server to be had.
const NONE_TO_BE_HAD: i32 = 3;

/// A running server. It ends when this is dropped, or with the process, however that ends: the
/// script waits for the end of its input.
pub struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

impl Server {
    /// The server that tests share, each with databases of its own. Nothing if this machine has to
    /// do without, which is said; never in CI.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Server>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// One of its own, for a test that breaks it.
    pub fn start() -> Option<Self> {
        if env::var_os("TONNAGE_WITHOUT_POSTGRES").is_some_and(|value| value == "1") {
            return without("TONNAGE_WITHOUT_POSTGRES=1 is set");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres-server");
        let mut command = Command::new("bash");
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[folder, port, _] = &words[..] else {
            let status = child.wait().unwrap();
            assert_eq!(status.code(), Some(NONE_TO_BE_HAD), "tests/postgres-server failed");
            return without("there is no PostgreSQL server, and none can be installed");
        };
        Some(Self { folder: PathBuf::from(folder), port: port.parse().unwrap(), child, input })
    }

    /// The certificate of the authority that signed the server's.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The TCP port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database through the Unix socket, as the superuser, without a password.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }

    /// The address of a database over TCP.
    pub fn tcp_url(&self, user: &str, host: &str, database: &str) -> String {
        format!("postgres://{user}@{host}:{}/{database}", self.port)
    }

    /// A connection of the test itself.
    pub fn client(&self, database: &str) -> Client {
        Client::connect(&self.url(database), NoTls).unwrap()
    }

    /// Makes a database; its name must be new.
    pub fn database(&self, name: &str, options: &str) -> Client {
        self.client("postgres")
            .batch_execute(&format!("CREATE DATABASE \"{name}\" {options}"))
            .unwrap();
        self.client(name)
    }
}

fn without(reason: &str) -> Option<Server> {
    assert!(env::var_os("CI").is_none(), "in CI, PostgreSQL is tested: {reason}");
    // The macros' output is shown for failures only.
    let _ = writeln!(std::io::stderr(), "NOT TESTED: imports from PostgreSQL ({reason})");
    None
}

/// Makes LiteLLM's table as its version 1.102.0 has it.
pub fn create_table(client: &mut Client) {
    client.batch_execute(&fs::read_to_string(super::data("create_table.sql")).unwrap()).unwrap();
}

/// Loads rows of a CSV with a header.
pub fn load(client: &mut Client, csv: &[u8]) {
    let columns: Vec<String> = header(csv).iter().map(|name| format!("\"{name}\"")).collect();
    let copy = format!(
        "COPY \"LiteLLM_SpendLogs\" ({}) FROM STDIN WITH (FORMAT csv, HEADER)",
        columns.join(", ")
    );
    let mut writer = client.copy_in(&copy).unwrap();
    writer.write_all(csv).unwrap();
    writer.finish().unwrap();
}

/// The names of a CSV's columns.
pub fn header(csv: &[u8]) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(csv);
    reader.headers().unwrap().iter().map(str::to_owned).collect()
}
