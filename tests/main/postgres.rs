//! Imports from a real PostgreSQL server, which the tests start themselves.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use flate2::read::GzDecoder;
use postgres::Client;

#[path = "postgres/server.rs"]
mod server;

use server::{PASSWORD, Server, create_table, header, load};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/spendlogs").join(name)
}

/// The text of a CSV among the test data.
fn csv(name: &str) -> Vec<u8> {
    let bytes = fs::read(data(name)).unwrap();
    if !name.ends_with(".gz") {
        return bytes;
    }
    let mut text = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
    text
}

/// The rows of a CSV for which `keep` holds of the named column.
fn rows_where(csv: &[u8], column: &str, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let index = header(csv).iter().position(|name| name == column).unwrap();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (number, record) in reader.records().enumerate() {
        let record = record.unwrap();
        if number == 0 || keep(&record[index]) {
            writer.write_record(&record).unwrap();
        }
    }
    writer.into_inner().unwrap()
}

/// A database of the shared server with LiteLLM's table and set A.
fn set_a(name: &str) -> Option<(&'static Server, Client)> {
    let server = Server::shared()?;
    let mut client = server.database(name, "");
    create_table(&mut client);
    load(&mut client, &csv("set-a.csv.gz"));
    Some((server, client))
}

/// What a run of `tonnage import spendlogs` left behind.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    stderr: String,
    /// Trace and sidecar, if they were written.
    files: Option<(String, String)>,
}

impl Run {
    fn of(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("trace.csv");
        let mut command = tonnage(folder.path());
        command.args(["import", "spendlogs", "--turn-gap", "4", "-o"]).arg(&out);
        let output = command.args(arguments).envs(variables.iter().copied()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let left = fs::read_dir(folder.path()).unwrap().count();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let files = (left > 0).then(|| (read("trace.csv"), read("trace.meta.json")));
        Self { code: output.status.code(), stderr, files }
    }

    /// The trace of a run that succeeded.
    fn trace(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        &self.files.as_ref().unwrap().0
    }

    /// Fails unless the run failed, with these words and without leaving anything.
    fn refused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert!(self.files.is_none(), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
    }
}

/// The command, with nothing of the surroundings that says how to connect.
fn tonnage(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tonnage"));
    for name in ["PGPASSWORD", "PGPASSFILE", "PGSSLMODE", "PGSSLROOTCERT", "SSL_CERT_FILE"] {
        command.env_remove(name);
    }
    command.env("HOME", home);
    command
}

fn import(arguments: &[&str]) -> Run {
    Run::of(arguments, &[])
}

/// The import of a CSV.
fn import_csv(text: &[u8], options: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    fs::write(&file, text).unwrap();
    import(&[&[file.to_str().unwrap()], options].concat())
}

#[test]
fn rows_of_every_version_give_the_trace_of_their_csv() {
    let Some(server) = Server::shared() else { return };
    for (database, name, added) in [
        ("set-a", "set-a.csv.gz", ""),
        ("set-b", "set-b-prompts-on.csv.gz", ""),
        ("v1.60", "derived-1.60-shape.csv", ""),
        ("v1.74", "derived-1.74-shape.csv.gz", ""),
        (
            "v1.110.2",
            "set-a.csv.gz",
            "ALTER TABLE \"LiteLLM_SpendLogs\" ADD billing_agent_id text, ADD litellm_call_id text",
        ),
    ] {
        let csv = csv(name);
        let mut client = server.database(database, "");
        create_table(&mut client);
        drop_other_columns(&mut client, &header(&csv));
        client.batch_execute(added).unwrap();
        load(&mut client, &csv);
        let of_csv = import_csv(&csv, &["--keep-ids"]);
        let of_table = import(&[&server.url(database), "--keep-ids"]);
        assert!(!of_csv.trace().is_empty());
        assert_eq!(of_table.trace(), of_csv.trace(), "{name}");
        assert_eq!(of_table.files, of_csv.files, "{name}: the sidecars differ");
        assert!(of_table.stderr.contains("PostgreSQL"), "{}", of_table.stderr);
    }
}

/// Takes the columns away that are not among `kept`; PostgreSQL keeps their places.
fn drop_other_columns(client: &mut Client, kept: &[String]) {
    let all = client
        .query(
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = \
                'LiteLLM_SpendLogs'",
            &[],
        )
        .unwrap();
    let all: BTreeSet<String> = all.iter().map(|row| row.get(0)).collect();
    for column in all.iter().filter(|name| !kept.contains(name)) {
        client
            .batch_execute(&format!("ALTER TABLE \"LiteLLM_SpendLogs\" DROP COLUMN \"{column}\""))
            .unwrap();
    }
}

#[test]
fn bounds_are_instants_on_the_clock_of_the_table() {
    let Some((server, _)) = set_a("bounds") else { return };
    let (url, all) = (server.url("bounds"), csv("set-a.csv.gz"));
    // The database writes fractions without their trailing zeros; as text, that order is enough.
    let since = "2026-11-29 16:42";
    let until = "2026-11-29 16:43";
    let both = |start: &str| (since..until).contains(&start);
    let cases: [(&[&str], Vec<u8>); 4] = [
        (&["--since", "2026-11-29T16:42:00Z"], rows_where(&all, "startTime", |at| at >= since)),
        (&["--until", "2026-11-29 16:43:00"], rows_where(&all, "startTime", |at| at < until)),
        (
            &["--since", "2026-11-29T17:42:00+01:00", "--until", "2026-11-29T16:43:00Z"],
            rows_where(&all, "startTime", both),
        ),
        (&["--since", "2026-11-29", "--until", "2026-11-30"], all.clone()),
    ];
    for (options, expected) in cases {
        let run = import(&[&[&*url], options].concat());
        assert_eq!(run.trace(), import_csv(&expected, &[]).trace(), "{options:?}");
    }
    let first = "2026-11-29 16:41:07.973";
    let run = import(&[&url, "--since", first, "--until", "2026-11-29 16:41:07.974"]);
    let expected = import_csv(&rows_where(&all, "startTime", |at| at == first), &[]);
    assert_eq!(run.trace(), expected.trace(), "the start belongs to the range, the end does not");

    // The same rows, taken for local time five hours behind UTC.
    let clock = ["--utc-offset", "-05:00"];
    let expected = import_csv(&rows_where(&all, "startTime", |at| at >= since), &clock);
    for bound in ["2026-11-29 16:42:00", "2026-11-29T21:42:00Z"] {
        let run = import(&[&*url, "--since", bound, clock[0], clock[1]]);
        assert_eq!(run.trace(), expected.trace(), "{bound}");
    }
    let sidecar = &import(&[&url, "--since", since, "--where", "true"]).files.unwrap().1;
    let made_by = "--utc-offset +00:00 --since 2026-11-29T16:42:00Z --where ...";
    assert!(sidecar.contains(made_by), "{sidecar}");
}

#[test]
fn bounds_that_are_none_or_exclude_everything_are_refused() {
    let Some((server, mut client)) = set_a("no-rows") else { return };
    let url = server.url("no-rows");
    import(&[&url, "--since", "yesterday"]).refused(&["--since: found `yesterday`", "2026-11-01"]);
    import(&[&url, "--since", "2026-11-30", "--until", "2026-11-29"])
        .refused(&["--until: found `2026-11-29T00:00:00Z`", "--since (2026-11-30T00:00:00Z)"]);
    import(&[&url, "--since", "2027-01-01"])
        .refused(&["nothing to import", "from 2026-11-29 16:41:07.973 to"]);
    client.batch_execute("DELETE FROM \"LiteLLM_SpendLogs\"").unwrap();
    import(&[&url]).refused(&["\"public\".\"LiteLLM_SpendLogs\" is empty"]);
}

#[test]
fn a_condition_is_one_condition_beside_the_bounds() {
    let Some((server, _)) = set_a("conditions") else { return };
    let url = server.url("conditions");
    let all = csv("set-a.csv.gz");
    let team = import_csv(&rows_where(&all, "team_id", |team| team == "team-platform"), &[]);
    for condition in ["team_id = 'team-platform'", "team_id = 'team-platform' -- and no other"] {
        assert_eq!(import(&[&url, "--where", condition]).trace(), team.trace(), "{condition}");
    }
    let later = rows_where(&all, "startTime", |at| at >= "2026-11-29 16:42");
    let run = import(&[&url, "--since", "2026-11-29 16:42:00", "--where", "false OR true"]);
    assert_eq!(run.trace(), import_csv(&later, &[]).trace());
    for (condition, words) in [
        ("team = 'x'", &["column \"team\" does not exist", "42703", "at character 1 of the"][..]),
        ("status = 'a' AND spnd > 0", &["at character 18 of the condition: spnd > 0"]),
        ("status =", &["syntax error", "at the end of the condition"]),
        ("\"user\"", &["must be type boolean", "at character 1"]),
        ("true) OR (true", &["syntax error", "at character 5 of the condition: ) OR"]),
        ("true] || ARRAY[true", &["syntax error", "at character 5"]),
        ("true); DELETE FROM \"LiteLLM_SpendLogs\"; --", &["syntax error", "at character 5"]),
        ("true; SELECT 1", &["syntax error", "at character 5 of the condition: ; SELECT 1"]),
        ("true /* and", &["unterminated", "comment"]),
        ("spend > $1", &["a parameter"]),
        ("", &["--where: PostgreSQL: syntax error", "at the end of the condition"]),
    ] {
        import(&[&url, "--where", condition]).refused(words);
    }
}

#[test]
fn nothing_can_be_written() {
    let Some((server, mut client)) = set_a("read-only") else { return };
    client
        .batch_execute(
            "CREATE FUNCTION wipe() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
             DELETE FROM \"LiteLLM_SpendLogs\"; RETURN true; END $$; CREATE SEQUENCE counter",
        )
        .unwrap();
    let url = server.url("read-only");
    import(&[&url, "--where", "wipe()"]).refused(&["25006", "an import only reads"]);
    import(&[&url, "--where", "nextval('counter') > 0"]).refused(&["25006"]);
    let unlocked = "set_config('transaction_read_only', 'off', true) IS NOT NULL AND wipe()";
    import(&[&url, "--where", unlocked]).refused(&["PostgreSQL: "]);
    let left = client.query_one("SELECT count(*) FROM \"LiteLLM_SpendLogs\"", &[]).unwrap();
    assert_eq!(left.get::<_, i64>(0), 245);
}

#[test]
fn the_table_is_found_in_any_schema() {
    let Some((server, mut client)) = set_a("schemas") else { return };
    let url = server.url("schemas");
    let expected = import(&[&url]);
    client
        .batch_execute("CREATE SCHEMA proxy; ALTER TABLE \"LiteLLM_SpendLogs\" SET SCHEMA proxy")
        .unwrap();
    assert_eq!(import(&[&url]).trace(), expected.trace());
    assert_eq!(import(&[&format!("{url}?schema=proxy")]).trace(), expected.trace());
    client
        .batch_execute(
            "CREATE SCHEMA other; CREATE TABLE other.\"LiteLLM_SpendLogs\" (request_id text, \
             start_time timestamp); CREATE VIEW public.calls AS SELECT * FROM \
             proxy.\"LiteLLM_SpendLogs\"",
        )
        .unwrap();
    import(&[&url]).refused(&["in several schemas", "other, proxy"]);
    for table in ["proxy.LiteLLM_SpendLogs", "\"proxy\".\"LiteLLM_SpendLogs\"", "calls"] {
        assert_eq!(import(&[&url, "--table", table]).trace(), expected.trace(), "{table}");
    }
    import(&[&url, "--table", "other.LiteLLM_SpendLogs"]).refused(&[
        "lacks call_type, api_key",
        "`start_time` is there",
        "calls it `startTime`",
    ]);
    import(&[&url, "--table", "litellm_spendlogs"])
        .refused(&["no table \"litellm_spendlogs\"", "did you mean \"other\".\"LiteLLM_SpendLogs"]);
    import(&[&url, "--table", "nowhere.calls"]).refused(&["no table \"calls\" in nowhere"]);
    import(&[&url, "--table", "a.b.c"]).refused(&["--table"]);
}

#[test]
fn who_may_not_read_is_told_what_is_missing() {
    let Some((server, mut client)) = set_a("denied") else { return };
    client.batch_execute("CREATE ROLE reader LOGIN PASSWORD 'hidden-word'").unwrap();
    let url = server.tcp_url("reader:hidden-word", "localhost", "denied");
    let run = import(&[&url]);
    run.refused(&["permission denied for table LiteLLM_SpendLogs", "42501", "SELECT on the table"]);
    assert!(!run.stderr.contains("hidden-word") && !run.stderr.contains("reader"), "{run:?}");
    client.batch_execute("GRANT SELECT ON \"LiteLLM_SpendLogs\" TO reader").unwrap();
    let run = import(&[&url]);
    let (_, sidecar) = run.files.as_ref().unwrap();
    assert!(!run.stderr.contains("hidden-word") && !sidecar.contains("hidden-word"), "{run:?}");
    client.batch_execute("DROP OWNED BY reader; DROP ROLE reader").unwrap();
}

#[test]
fn passwords_come_from_the_url_the_environment_or_the_file() {
    let Some((server, _)) = set_a("passwords") else { return };
    let port = server.port();
    let url = server.tcp_url("postgres", "localhost", "passwords");
    let with =
        |password: &str| server.tcp_url(&format!("postgres:{password}"), "localhost", "passwords");
    import(&[&url]).refused(&["password missing", "PGPASSWORD", "~/.pgpass"]);
    let wrong = import(&[&with("not-this-one")]);
    wrong.refused(&["password authentication failed", "28P01", "PGPASSWORD"]);
    assert!(!wrong.stderr.contains("not-this-one"), "{wrong:?}");
    import(&[&with("sec@ret")]).refused(&["more than one `@`", "%40"]);

    let expected = import(&[&with(PASSWORD)]);
    let variable = Run::of(&[&url], &[("PGPASSWORD", PASSWORD)]);
    assert_eq!(variable.trace(), expected.trace());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pgpass");
    fs::write(&file, format!("localhost:{port}:passwords:postgres:{PASSWORD}\n")).unwrap();
    let file_name = file.to_str().unwrap();
    set_mode(&file, 0o644);
    Run::of(&[&url], &[("PGPASSFILE", file_name)]).refused(&["others may read", "chmod 0600"]);
    set_mode(&file, 0o600);
    let from_file = Run::of(&[&url], &[("PGPASSFILE", file_name)]);
    assert_eq!(from_file.trace(), expected.trace());
}

fn set_mode(file: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn databases_that_cannot_be_reached_are_named() {
    let Some(server) = Server::shared() else { return };
    let missing = server.url("not-there");
    import(&[&missing]).refused(&["not-there\" does not exist", "3D000"]);
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://ana:hidden-word@127.0.0.1:{port}/x");
    let refused = import(&[&url]);
    refused.refused(&["cannot connect", "onnection refused", &format!("127.0.0.1:{port}/x")]);
    assert!(!refused.stderr.contains("hidden-word") && !refused.stderr.contains("ana"));
    import(&["postgres:///x"]).refused(&["names no host"]);
    let other = import(&["mysql://ana:hidden-word@127.0.0.1/x"]);
    other.refused(&["no address of a PostgreSQL database"]);
    assert!(!other.stderr.contains("hidden-word"));
    import(&[&missing, &missing]).refused(&["an input of its own"]);
    let file = data("derived-1.60-shape.csv");
    import(&[file.to_str().unwrap(), "--since", "2026-11-29"])
        .refused(&["--since: this is for databases only"]);
}

#[test]
fn encryption_is_used_and_certificates_are_checked_as_asked() {
    let Some((server, _)) = set_a("encrypted") else { return };
    let authority = server.authority().display().to_string();
    let encrypted = "(SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())";
    let plain = format!("NOT {encrypted}");
    let url = |host: &str, options: &str| {
        let user = format!("postgres:{PASSWORD}");
        format!("{}?{options}", server.tcp_url(&user, host, "encrypted"))
    };
    let trusted = format!("sslrootcert={authority}");
    for (host, options, condition) in [
        ("localhost", "", encrypted),
        ("localhost", "sslmode=disable", &*plain),
        ("localhost", "sslmode=require", encrypted),
        ("127.0.0.1", &format!("sslmode=require&{trusted}"), encrypted),
        ("127.0.0.1", &format!("sslmode=verify-ca&{trusted}"), encrypted),
        ("localhost", &format!("sslmode=verify-full&{trusted}"), encrypted),
        ("localhost", &format!("sslmode=verify-full&channel_binding=require&{trusted}"), encrypted),
    ] {
        let run = import(&[&url(host, options), "--where", condition]);
        assert_eq!(run.code, Some(0), "{options}: {run:?}");
    }
    import(&[&url("127.0.0.1", &format!("sslmode=verify-full&{trusted}"))])
        .refused(&["TLS", "not valid for name"]);
    import(&[&url("localhost", "sslmode=verify-full&sslrootcert=not-there.crt")])
        .refused(&["not-there.crt: sslrootcert: cannot read"]);
    let none = data("README.md");
    import(&[&url("localhost", &format!("sslmode=verify-ca&sslrootcert={}", none.display()))])
        .refused(&["holds no certificate"]);
    // The system's authorities did not sign it; where there are none, that is said.
    let system = import(&[&url("localhost", "sslmode=verify-full")]);
    system.refused(&["sslrootcert=FILE"]);
    let socket = format!("{}?sslmode=require", server.url("encrypted"));
    import(&[&socket]).refused(&["TLS"]);
}

#[test]
fn rows_that_cannot_be_read_are_named() {
    let Some(server) = Server::shared() else { return };
    let mut client = server.database("bad-rows", "ENCODING SQL_ASCII TEMPLATE template0");
    create_table(&mut client);
    load(&mut client, &csv("set-a.csv.gz"));
    let request = "333c3b22-50de-4e23-a25b-8f2239fc9894";
    let mut spoil = |change: &str| {
        let update =
            format!("UPDATE \"LiteLLM_SpendLogs\" SET {change} WHERE request_id = '{request}'");
        client.batch_execute(&update).unwrap();
    };
    let url = server.url("bad-rows");
    spoil("\"endTime\" = '2026-11-29 16:00:00'");
    let place = format!("request_id `{request}`: endTime: found `2026-11-29 16:00:00`, allowed");
    import(&[&url]).refused(&[&place, "1 of 245 rows are bad"]);
    let run = import(&[&url, "--skip-bad"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // PostgreSQL itself refuses to hand this one out.
    spoil("\"user\" = 'an' || E'\\xff'");
    import(&[&url, "--skip-bad"]).refused(&["invalid byte sequence", "22021", "--where"]);
    let others = format!("request_id <> '{request}'");
    assert_eq!(import(&[&url, "--where", &others]).trace(), run.trace());
}

#[test]
fn a_server_that_gives_up_is_quoted() {
    let Some((server, _)) = set_a("time-out") else { return };
    let url = format!("{}?options=-c%20statement_timeout%3D200", server.url("time-out"));
    import(&[&url, "--where", "pg_sleep(0.05) IS NOT NULL"]).refused(&[
        "canceling statement due to statement timeout",
        "57014",
        "--since",
    ]);
}

#[test]
fn a_connection_that_breaks_leaves_nothing_and_the_next_import_is_whole() {
    // Killing a process of the server ends all connections of all tests.
    let Some(server) = Server::start() else { return };
    let mut client = server.database("broken", "");
    create_table(&mut client);
    load(&mut client, &csv("set-a.csv.gz"));
    let url = server.url("broken");
    let whole = import(&[&url]);
    for politely in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        // Rows trickle, so that the connection breaks in mid-read; 8 kB of them come at once.
        let mut command = tonnage(folder.path());
        let child = command
            .args(["import", "spendlogs", &url, "--where", "pg_sleep(0.02) IS NOT NULL", "-o"])
            .arg(folder.path().join("trace.csv"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = server.client("broken");
        let reader = reading_process(&mut client);
        sleep(Duration::from_millis(500));
        if politely {
            client.execute("SELECT pg_terminate_backend($1)", &[&reader]).unwrap();
        } else {
            let kill = Command::new("kill").args(["-KILL", &reader.to_string()]).status();
            assert!(kill.unwrap().success());
        }
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("the connection was lost after"), "{stderr}");
        assert!(!stderr.contains("after 0 rows"), "{stderr}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // The server comes back by itself; until then it says that it is starting.
    let again = (0..50).find_map(|_| {
        sleep(Duration::from_millis(200));
        let run = import(&[&url]);
        (run.code == Some(0)).then_some(run)
    });
    assert_eq!(again.unwrap().trace(), whole.trace());
}

/// The server's process that reads for an import, once it does.
fn reading_process(client: &mut Client) -> i32 {
    let find = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tonnage' AND query LIKE \
                '%pg_sleep%' AND state = 'active' AND wait_event = 'PgSleep'";
    let found = (0..200).find_map(|_| {
        sleep(Duration::from_millis(20));
        client.query_opt(find, &[]).unwrap()
    });
    found.unwrap().get(0)
}
