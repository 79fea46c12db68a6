//! Every form in which SpendLogs rows leave LiteLLM gives the same trace, and what is none of them
//! is named; see the README beside the data.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use tonnage::trace::import::spendlogs::{Import, Options, import};
use tonnage::units::{Span, Tokens};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/spendlogs").join(name)
}

/// The content of a data file, unpacked.
fn content(name: &str) -> String {
    let bytes = fs::read(data(name)).unwrap();
    let mut text = String::new();
    if name.ends_with(".gz") {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        return text;
    }
    let bytes = if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
    String::from_utf8(bytes).unwrap()
}

fn options() -> Options {
    Options { turn_gap: Span::from_secs(4), keep_ids: true, ..Options::default() }
}

fn ok(name: &str) -> Import {
    import(&[data(name)], &options()).unwrap()
}

/// Imports a file with this content.
fn written(text: impl AsRef<[u8]>, options: &Options) -> Result<Import, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rows");
    fs::write(&file, text).unwrap();
    import(&[file], options).map_err(|error| error.to_string())
}

fn written_ok(text: impl AsRef<[u8]>) -> Import {
    written(text, &options()).unwrap()
}

fn error(text: impl AsRef<[u8]>) -> String {
    written(text, &options()).unwrap_err()
}

fn warns(import: &Import, of: &str) -> bool {
    import.report.warnings.iter().any(|warning| warning.0.contains(of))
}

/// The CSV of set A, cut down to some rows.
fn rows_of_set_a(wanted: &BTreeSet<String>) -> String {
    let text = content("set-a.csv.gz");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(reader.headers().unwrap()).unwrap();
    for row in reader.records().map(Result::unwrap).filter(|row| wanted.contains(&row[0])) {
        writer.write_record(&row).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

fn ids(text: &str) -> BTreeSet<String> {
    let id = |part: &str| part.split('"').next().unwrap().to_owned();
    text.split("\"request_id\":\"").skip(1).map(id).collect()
}

/// A CSV's rows without its header.
fn without_header(csv: &str) -> &str {
    csv.split_once('\n').unwrap().1
}

mod forms {
    use super::*;

    #[test]
    fn psql_s_other_forms_give_the_trace_of_the_csv() {
        let wanted = ids(&content("row-to-json.jsonl.zst"));
        assert_eq!(wanted.len(), 14);
        let csv = written_ok(rows_of_set_a(&wanted));
        assert_eq!(csv.report.rows_read, 14);
        for (name, form) in [
            ("no-header.csv.zst", "CSV without header"),
            ("copy-text.tsv.zst", "COPY text"),
            ("row-to-json.jsonl.zst", "JSON lines"),
        ] {
            let other = ok(name);
            assert_eq!(other.report.files[0].form, form);
            assert_eq!((&other.trace, &other.meta), (&csv.trace, &csv.meta), "{name}");
        }
        let text = content("copy-text.tsv.zst");
        let no_header = written_ok(without_header(&text));
        assert_eq!(no_header.report.files[0].form, "COPY text without header");
        assert_eq!(no_header.trace, csv.trace);
        let windows = written_ok(text.replace('\n', "\r\n"));
        assert_eq!(windows.trace, csv.trace);
    }

    #[test]
    fn the_older_api_gives_the_trace_of_the_csv() {
        let array = ok("legacy-array.json.gz");
        assert_eq!(array.report.files[0].form, "JSON array");
        let csv = written_ok(rows_of_set_a(&ids(&content("legacy-array.json.gz"))));
        assert_eq!((array.report.rows_read, &array.trace), (40, &csv.trace));
        assert_eq!(array.meta, csv.meta);
    }

    #[test]
    fn stored_prompts_give_the_same_trace_from_csv_and_json() {
        let (csv, json) = (ok("set-b-prompts-on.csv.gz"), ok("set-b-prompts-on.json.zst"));
        assert_eq!((json.report.rows_read, json.report.cache_hits), (25, 5));
        assert_eq!((csv.trace, csv.meta), (json.trace, json.meta));
    }

    #[test]
    fn a_parent_in_a_stored_header_is_known() {
        // The row carries the parent's id itself, so there is nothing to be joined.
        let import = ok("set-b-prompts-on.csv.gz");
        let ids: Vec<&str> = import.trace.sessions.iter().map(|session| &*session.id).collect();
        assert!(ids.contains(&"parent-session-0001"), "{ids:?}");
        assert_eq!((import.report.child_sessions, import.report.orphans), (0, 0));
        let text = content("set-b-prompts-on.csv.gz");
        let other = text.replace(",parent-session-0001,success", ",child-session-0001,success");
        assert_ne!(text, other);
        assert_eq!(written_ok(other).report.orphans, 1, "the header still names its parent");
    }

    #[test]
    fn tables_of_every_version_are_read_without_a_header() {
        for name in ["set-a.csv.gz", "derived-1.60-shape.csv", "derived-1.74-shape.csv.gz"] {
            let text = content(name);
            assert_eq!(written_ok(without_header(&text)).trace, ok(name).trace, "{name}");
        }
    }

    #[test]
    fn columns_that_values_do_not_prove_are_asked_for() {
        let text = content("derived-1.74-shape.csv.gz");
        let (header, rows) = text.split_once('\n').unwrap();
        // Another order: the first and the second column change places.
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.has_headers(false).from_reader(rows.as_bytes());
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in reader.records().map(Result::unwrap) {
            let mut fields: Vec<&str> = row.iter().collect();
            fields.swap(15, 20);
            writer.write_record(fields).unwrap();
        }
        let other = writer.into_inner().unwrap();
        let error = error(&other);
        assert!(error.contains("fits no order") && error.contains("csv header"), "{error}");
        let mut columns: Vec<String> = header.split(',').map(str::to_owned).collect();
        columns.swap(15, 20);
        let named = Options { columns, ..options() };
        let import = written(&other, &named).unwrap();
        assert_eq!(import.trace, ok("derived-1.74-shape.csv.gz").trace);
        let error = written(&text, &named).unwrap_err();
        assert!(error.contains("--columns has no use"), "{error}");
        let few = Options { columns: vec!["request_id".to_owned()], ..options() };
        let error = written(&other, &few).unwrap_err();
        assert!(error.contains("the header lacks"), "{error}");
    }

    #[test]
    fn an_order_that_is_left_open_is_not_guessed() {
        // Without statuses and session ids, nothing tells their columns apart.
        let text = content("derived-1.74-shape.csv.gz");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in reader.records().map(Result::unwrap) {
            let mut fields: Vec<&str> = row.iter().collect();
            fields[25..].fill("");
            writer.write_record(fields).unwrap();
        }
        let error = error(writer.into_inner().unwrap());
        assert!(error.contains("fits no order"), "{error}");
    }

    #[test]
    fn a_byte_order_mark_and_packing_under_any_name_are_no_matter() {
        let text = content("derived-1.60-shape.csv");
        let expected = ok("derived-1.60-shape.csv").trace;
        assert_eq!(written_ok(format!("\u{feff}{text}")).trace, expected);
        assert_eq!(written_ok(text.replace('\n', "\r\n")).trace, expected);
        assert_eq!(written_ok(zstd::encode_all(text.as_bytes(), 1).unwrap()).trace, expected);
        assert_eq!(written_ok(gzip(text.as_bytes())).trace, expected);
        let page = content("set-a.v2.json.gz");
        let page = written_ok(format!("\u{feff}{page}"));
        assert_eq!(page.trace, ok("set-a.csv.gz").trace);
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

mod payloads {
    use super::*;

    #[test]
    fn a_logger_s_payloads_are_calls_of_their_trace_id() {
        let import = ok("logger-payloads.jsonl.zst");
        assert_eq!(import.report.files[0].form, "logger payloads");
        assert_eq!((import.report.rows_read, import.report.calls_ok), (10, 10));
        let [a, b, c] = &import.trace.sessions[..] else { panic!("three sessions") };
        assert_eq!(
            [&*a.id, &*b.id, &*c.id],
            ["slp-session-0000", "slp-session-0001", "slp-session-0002"]
        );
        assert_eq!([a.calls.len(), b.calls.len(), c.calls.len()], [4, 3, 3]);
        let call = &b.calls[1];
        assert_eq!((call.prompt_tokens, call.output_tokens), (Tokens(1_607), Tokens(20)));
        // 1795971698.375561 to .551741, first token at .421033.
        assert_eq!(call.seen_duration, Some(Span::from_micros(176_180)));
        assert_eq!(call.seen_ttft, Some(Span::from_micros(45_472)));
        assert_eq!(&*call.model, "agents-30b");
        assert_eq!(import.meta.start.as_deref(), Some("2026-11-29T17:01:37.036282Z"));
    }

    #[test]
    fn one_a_file_many_in_a_file_and_arrays_give_the_same_trace() {
        let text = content("logger-payloads.jsonl.zst");
        let expected = ok("logger-payloads.jsonl.zst").trace;
        let folder = TempDir::new().unwrap();
        for (number, line) in text.lines().enumerate() {
            let day = folder.path().join(format!("2026-11-{}", 29 - number % 2));
            fs::create_dir_all(&day).unwrap();
            fs::write(day.join(format!("call-{number}.json")), line).unwrap();
        }
        fs::write(folder.path().join(".listing"), "no payload").unwrap();
        let import = import(&[folder.path().to_owned()], &options()).unwrap();
        assert_eq!(import.trace, expected);
        let [file] = &import.report.files[..] else { panic!("one line of the report") };
        assert_eq!((file.form, file.rows), ("logger payloads", 10));
        let values: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let pretty: String =
            values.iter().map(|value| serde_json::to_string_pretty(value).unwrap()).collect();
        assert_eq!(written_ok(pretty).trace, expected);
        let array = serde_json::to_string(&values).unwrap();
        assert_eq!(written_ok(&array).trace, expected);
        // As one of several parts, with repetitions.
        let both = written_ok(format!("{text}{array}"));
        assert_eq!((both.report.duplicates, both.trace), (10, expected));
    }

    #[test]
    fn failures_retries_and_owners_of_payloads_are_known() {
        let text = content("logger-payloads.jsonl.zst");
        let line = text.lines().next().unwrap();
        let mut payload: serde_json::Value = serde_json::from_str(line).unwrap();
        payload["status"] = "failure".into();
        payload["completion_tokens"] = 0.into();
        payload["id"] = "".into();
        payload["metadata"]["user_api_key_hash"] = "hash".into();
        payload["metadata"]["user_api_key_user_id"] = "ana".into();
        payload["metadata"]["user_api_key_team_id"] = "team".into();
        payload["user_agent"] = "claude-cli/2.1.14 (external, cli)".into();
        payload["hidden_params"]["additional_headers"]["x-litellm-attempted-retries"] = 2.into();
        payload["metadata"]["requester_custom_headers"] =
            serde_json::json!({ "x-parent-session-id": "elsewhere" });
        let import = written_ok(payload.to_string());
        let call = &import.trace.sessions[0].calls[0];
        assert_eq!((import.report.calls_failed, call.retries), (1, 2));
        assert_eq!((&*call.user, &*call.tenant, &*call.profile), ("ana", "team", "claude-cli"));
        assert_eq!(call.key.as_deref(), Some("hash"));
        assert_eq!(import.report.orphans, 1, "the parent that a header names");
    }
}

mod refusals {
    use super::*;

    #[test]
    fn what_is_no_rows_is_refused_by_name() {
        for (name, expected) in [
            ("per-day.json", "sum per day, no rows"),
            ("README.md", "no export of LiteLLM_SpendLogs"),
        ] {
            let error = import(&[data(name)], &options()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
        }
        for (text, expected) in [
            ("", "the file is empty"),
            ("[]", "an empty array"),
            ("[{\"models\":{},\"users\":{},\"startTime\":\"2026-11-29\"}]", "sum per day"),
            ("{\"results\":[],\"metadata\":{}}", "daily activity"),
            ("{\"detail\":\"Not found\"}", "error message of the API"),
            ("{\"error\":{\"message\":\"no\"}}", "error message of the API"),
            ("{\"data\":{\"a\":1}}", "no array of rows"),
            ("{\"a\":1}", "no rows of LiteLLM_SpendLogs"),
            ("[1,2]", "is no object"),
            ("BilledCost,ChargePeriodStart\n1,2\n", "FOCUS"),
            ("PAR1\0", "Parquet"),
            ("id,date,user_id,api_requests\n", "daily activity"),
            ("COPY public.\"LiteLLM_SpendLogs\" (request_id) FROM stdin;\n", "pg_dump"),
            (" request_id | call_type \n", "for reading"),
            ("request_id;call_type\n", "separated by `;`"),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let folder = TempDir::new().unwrap();
        let error = import(&[folder.path().to_owned()], &options()).unwrap_err().to_string();
        assert!(error.contains("holds no files"), "{error}");
    }

    #[test]
    fn packed_files_that_are_cut_off_say_so() {
        let text = content("set-a.csv.gz");
        for packed in [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 1).unwrap()] {
            for keep in [packed.len() / 2, packed.len() - 5] {
                let error = error(&packed[..keep]);
                assert!(error.contains("it is cut off"), "{keep}: {error}");
            }
        }
        let mut broken = gzip(text.as_bytes());
        let middle = broken.len() / 2;
        broken[middle..middle + 100].fill(0);
        let error = error(broken);
        assert!(error.contains("cannot read") || error.contains("cut off"), "{error}");
    }

    #[test]
    fn files_that_are_cut_off_name_the_row() {
        let csv = content("set-a.csv.gz");
        let cut = &csv[..csv.find("\"\"usage_object\"\"").unwrap()];
        let error_of_csv = error(cut);
        assert!(error_of_csv.contains("rows:2: the file ends within quotes"), "{error_of_csv}");
        let json = content("set-a.v2.json.gz");
        let cut = &json[..json.len() / 2];
        assert!(error(cut).contains("the JSON ends too early: the file is cut off"));
        let skipped = written(cut, &Options { skip_bad: true, ..options() }).unwrap();
        assert!(skipped.report.rows_read > 50 && skipped.report.rows_bad == 1);
        let lines = content("row-to-json.jsonl.zst");
        let error = error(&lines[..lines.len() - 50]);
        assert!(error.contains("rows:14:") && error.contains("ends too early"), "{error}");
    }

    #[test]
    fn a_broken_line_of_json_spoils_itself_only() {
        let text = content("row-to-json.jsonl.zst");
        let lines: Vec<&str> = text.lines().collect();
        // Cut off within a string, so that the next line seems to go on with it.
        let cut = &lines[2][..lines[2].find("acompletion").unwrap() + 3];
        let broken = text.replace(lines[2], cut);
        let error = error(&broken);
        assert!(error.contains("rows:3:") && error.contains("not valid JSON"), "{error}");
        assert!(error.contains("1 of 14 rows are bad"), "{error}");
        let skipped = written(&broken, &Options { skip_bad: true, ..options() }).unwrap();
        assert_eq!((skipped.report.rows_read, skipped.report.rows_bad), (14, 1));
    }
}

mod oddities {
    use super::*;

    /// A row of set A with its metadata replaced, in each form.
    fn with_metadata(metadata: &str) -> [String; 3] {
        let text = content("set-a.csv.gz");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let row = reader.records().map(Result::unwrap).find(|row| &row[27] == "success").unwrap();
        let at = header.iter().position(|name| name == "metadata").unwrap();
        let mut csv = csv::Writer::from_writer(Vec::new());
        csv.write_record(&header).unwrap();
        let mut fields: Vec<&str> = row.iter().collect();
        fields[at] = metadata;
        csv.write_record(&fields).unwrap();
        let csv = String::from_utf8(csv.into_inner().unwrap()).unwrap();
        let escaped =
            |text: &str| text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
        let line =
            |fields: Vec<&str>| fields.into_iter().map(escaped).collect::<Vec<String>>().join("\t");
        let names = header.iter().collect::<Vec<&str>>().join("\t");
        let copy = format!("{names}\n{}\n", line(fields.clone()));
        let json: serde_json::Map<String, serde_json::Value> = header
            .iter()
            .zip(&fields)
            .map(|(name, text)| match name {
                "metadata" => (name.to_owned(), serde_json::from_str(text).unwrap()),
                _ => (name.to_owned(), (*text).into()),
            })
            .collect();
        [csv, copy, serde_json::Value::from(json).to_string()]
    }

    #[test]
    fn an_error_message_of_megabytes_is_read_past() {
        let long = "QUJD\\\"\\n".repeat(700_000);
        let metadata = format!(
            r#"{{"error_information":{{"error_message":"{long}","error_code":"499"}},
            "attempted_retries":3,"usage_object":null}}"#
        );
        for text in with_metadata(&metadata.replace('\n', "")) {
            assert!(text.len() > 5_000_000);
            let import = written_ok(&text);
            assert_eq!(import.report.calls_aborted, 1, "the code behind the message counts");
            assert_eq!(import.trace.sessions[0].calls[0].retries, 3);
        }
    }

    #[test]
    fn texts_of_absurd_length_make_their_row_bad() {
        let id = "x".repeat(100_000);
        let text = content("set-a.csv.gz");
        let session = text.lines().nth(1).unwrap().split(',').next().unwrap().to_owned();
        let error_of_csv = error(text.replacen(&session, &id, 1));
        assert!(error_of_csv.contains("request_id: longer than 65536 bytes"), "{error_of_csv}");
        assert!(error_of_csv.contains("1 of 245 rows are bad"), "{error_of_csv}");
        let json = content("legacy-array.json.gz");
        let session = ids(&json).pop_first().unwrap();
        let error = error(json.replacen(&session, &id, 1));
        assert!(error.contains("request_id: longer than 65536 bytes"), "{error}");
        assert!(error.contains("[") && error.contains("1 of 40 rows are bad"), "{error}");
    }

    #[test]
    fn nul_characters_are_named_in_every_form() {
        let json = content("legacy-array.json.gz").replacen("\"carla\"", "\"car\\u0000la\"", 1);
        let error_of_json = error(&json);
        assert!(error_of_json.contains("[0].user: a NUL"), "{error_of_json}");
        let csv = content("set-a.csv.gz").replacen(",dario,", ",dar\0io,", 1);
        let error = error(csv);
        assert!(error.contains("user: a NUL") && error.contains("rows:"), "{error}");
    }

    #[test]
    fn times_with_and_without_an_offset_in_one_file_are_warned_of() {
        let naive = content("row-to-json.jsonl.zst");
        assert!(!warns(&written_ok(&naive), "name their offset"));
        let time = "\"startTime\":\"2026-11-29T16:41:29.788\"";
        let mixed = naive.replacen(time, "\"startTime\":\"2026-11-29T17:41:29.788+01:00\"", 1);
        assert_ne!(naive, mixed);
        let import = written_ok(&mixed);
        assert!(
            warns(&import, "the times of 1 rows name their offset"),
            "{:?}",
            import.report.warnings
        );
        assert_eq!(import.trace, written_ok(&naive).trace);
        // Different offsets are no matter, as long as each is named.
        let page = content("legacy-array.json.gz");
        let other = page.replacen("T16:43:45.183000Z", "T11:43:45.183-05:00", 1);
        assert_ne!(page, other);
        let import = written_ok(&other);
        assert!(import.report.warnings.iter().all(|text| !text.0.contains("offset")));
        assert_eq!(import.trace, written_ok(&page).trace);
    }

    #[test]
    fn exactly_as_many_rows_as_the_api_gives_out_are_suspicious() {
        let row = |n: u32| {
            format!(
                r#"{{"request_id":"chatcmpl-{n:032}","prompt_tokens":10,"completion_tokens":1,
                "startTime":"2026-11-29T16:00:00Z","endTime":"2026-11-29T16:00:01Z"}}"#
            )
        };
        let rows: Vec<String> = (0..10_000).map(row).collect();
        assert!(warns(&written_ok(format!("[{}]", rows.join(","))), "exactly 10000 rows"));
        assert!(!warns(&written_ok(format!("[{}]", rows[1..].join(","))), "exactly"));
        let page = |capped: bool| {
            format!(r#"{{"total":2,"total_is_capped":{capped},"data":[{}]}}"#, rows[0])
        };
        assert!(warns(&written_ok(page(true) + &page(false)), "total_is_capped"));
        assert!(!warns(&written_ok(page(false)), "total_is_capped"));
    }

    #[test]
    fn metadata_and_tags_may_be_json_in_a_string() {
        let text = content("legacy-array.json.gz");
        let mut rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        for row in &mut rows {
            for name in ["metadata", "request_tags", "proxy_server_request"] {
                row[name] = row[name].to_string().into();
            }
        }
        let strings = written_ok(serde_json::to_string(&rows).unwrap());
        assert_eq!(strings.trace, ok("legacy-array.json.gz").trace);
    }
}
