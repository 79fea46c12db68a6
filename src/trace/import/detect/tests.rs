//! Every kind on what its files begin with, and what is none.

use super::*;

/// The beginning of one file of each kind, in a line of JSON or with the header of a table.
const SAMPLES: [(Kind, &str); 24] = [
    (
        Kind::Canonical,
        "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
         prompt_tokens,output_tokens,tools,status\ns1,0,0,,0,user,0,0,m,,,,,0,9,6,,ok\n",
    ),
    (Kind::Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,9,1\r\n"),
    (
        Kind::Azure,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,9,1\n",
    ),
    (
        Kind::BurstGpt,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,472,18,490,x\n",
    ),
    (
        Kind::BurstGpt,
        "\u{feff}Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,\
         Total tokens,Log Type\n",
    ),
    (
        Kind::MiniSweAgent,
        "session,step,t_s,prompt_tokens,completion_tokens,cached_tokens,reasoning_tokens,\
         new_input_chars,provider,finish\n",
    ),
    (
        Kind::SpendLogs,
        "request_id,call_type,api_key,spend,total_tokens,prompt_tokens,completion_tokens,startTime,\
         endTime,completionStartTime,model\n",
    ),
    (
        Kind::SpendLogs,
        "request_id\tcall_type\tapi_key\tprompt_tokens\tcompletion_tokens\tstartTime\tendTime\n",
    ),
    (
        Kind::SpendLogs,
        "chatcmpl-1\tacompletion\tk\t0.1\t9\t8\t1\t2026-11-29 16:41:29.788\t\
         2026-11-29 16:41:30.67\t{\"status\": null, \"a\": \"b\\\\tc\"}\n",
    ),
    (
        Kind::SpendLogs,
        "chatcmpl-1,acompletion,k,0.1,9,8,1,2026-11-29 16:41:29.788,2026-11-29 16:41:30.67,\
         \"{\"\"status\"\": null}\"\n",
    ),
    (
        Kind::SpendLogs,
        r#"{"data":[{"request_id":"1","call_type":"a","startTime":"x","prompt_tokens":9}]}"#,
    ),
    (Kind::SpendLogs, r#"[{"request_id":"1","startTime":"x","prompt_tokens":9},{"request_id":"2"#),
    (
        Kind::SpendLogs,
        r#"{"request_id":"1","call_type":"acompletion","startTime":"x","prompt_tokens":9}"#,
    ),
    (
        Kind::SpendLogs,
        r#"{"id":"1","trace_id":"t","call_type":"acompletion","startTime":1.5,"endTime":2.5,
            "prompt_tokens":9}"#,
    ),
    (
        Kind::Weka,
        r#"{"id":"a","models":[],"block_size":64,"hash_id_scope":"local","requests":[
            {"t":0,"type":"subagent","requests":[]},{"t":0,"in":70,"out":3,"runs":[[1,1]]}]}"#,
    ),
    (
        Kind::Weka,
        r#"{"id":"a","block_size":64,"hash_id_scope":"global",
            "requests":[{"in":70,"runs":[[1,1]]}]}"#,
    ),
    (
        Kind::Weka,
        "{\n \"id\": \"a\",\n \"block_size\": 64,\n \"hash_id_scope\": \"local\",\n \"requests\": [\
         {\"in\": 70, \"hash_ids\": [1, 2, 3",
    ),
    (
        Kind::Lmcache,
        r#"{"id":"a","agent":"x","start_unix_s":1.5,"models":[],"block_size":64,
            "hash_id_scope":"global","requests":[{"t":0.0,"in":70,"out":3,"runs":[[1,1]]}]}"#,
    ),
    (
        Kind::Mooncake,
        r#"{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}"#,
    ),
    (
        Kind::Bailian,
        r#"{"chat_id":1,"parent_chat_id":-1,"timestamp":6.1,"input_length":5,"output_length":1,
            "type":"text","turn":1,"hash_ids":[10,11]}"#,
    ),
    (
        Kind::AgenticMooncake,
        r#"{"schema":"dynamo.agentic_mooncake","version":2,"block_size":512,
            "hash_id_scope":"local"}"#,
    ),
    (
        Kind::TraceLab,
        r#"{"provider":"codex","session_id":"s","round_index":0,"input_tokens_total":9,
            "prefix_tokens":4,"newly_append_tokens":5,"output_tokens":1,
            "timing_events":[{"event_type":"text","timestamp":"2026-06-01T05:40:20.151Z"}]}"#,
    ),
    (Kind::InferenceLab, r#"{"id":"a","steps":[{"input":9,"new":9,"output":1,"gap":0.0}]}"#),
    (
        Kind::PrefixGroups,
        "request_id,arrival_us,prefix_group,prefix_tokens,suffix_tokens,output_tokens\n",
    ),
];

#[test]
fn every_kind_is_known_by_its_content() {
    for (kind, text) in SAMPLES {
        let found = recognise(text.as_bytes());
        assert_eq!(found.as_ref().map(|found| found.kind), Ok(kind), "{text}");
    }
}

#[test]
fn the_whole_of_a_name_must_be_there() {
    for (kind, text) in SAMPLES {
        let Some(signature) = KINDS.iter().find(|one| {
            one.kind == kind && Shape::of(text.as_bytes()).is_ok_and(|shape| one.fits(&shape))
        }) else {
            unreachable!("{kind:?} has a sample that no signature fits");
        };
        for name in signature.needs.iter().filter(|name| !name.contains(['(', '=', '['])) {
            let changed = text.replace(name, "other");
            let found = recognise(changed.as_bytes()).map(|found| found.what);
            assert_ne!(found, Ok(signature.what), "without {name}: {changed}");
        }
    }
}

#[test]
fn what_is_nothing_known_is_told_with_what_came_nearest() {
    let error = |text: &str| recognise(text.as_bytes()).unwrap_err().to_string();
    let near = error("TIMESTAMP,ContextTokens,GeneratedToken\n1,2,3\n");
    assert!(near.contains("no known format: CSV with ContextTokens, GeneratedToken, TIMESTAMP"));
    let help = "nearest is an Azure LLM inference trace: 2 of 3 fields, without GeneratedTokens";
    assert!(near.contains(help) && near.contains("`GeneratedToken` is like"), "{near}");
    assert!(near.contains("looked for Mooncake: JSON of timestamp, input_length"), "{near}");
    for (text, said) in [
        ("", "empty"),
        ("\u{feff} \n", "empty"),
        ("PAR1\u{15}", "Parquet"),
        ("\u{7f}ELF", "binary"),
        ("a\0b\n", "binary"),
        ("[]", "no names of fields"),
        ("{\"a\": 1", "JSON with a"),
        ("hello\n", "CSV with hello"),
    ] {
        assert!(error(text).contains(said), "{text:?}: {}", error(text));
    }
}

#[test]
fn two_kinds_in_one_file_are_nobodys() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens,Timestamp,Model,Request tokens,\
                Response tokens,Log Type\n";
    let error = recognise(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("may be an Azure LLM inference trace (TIMESTAMP,"), "{error}");
    assert!(error.contains("or BurstGPT"), "{error}");
}

#[test]
fn a_name_of_any_length_and_depth_is_no_danger() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(recognise(deep.as_bytes()).is_err());
    let long = format!("{{\"{}\":1}}", "x".repeat(1_000_000));
    assert!(recognise(long.as_bytes()).unwrap_err().to_string().len() < 4_000);
    let many: String = (0..100_000).map(|number| format!("c{number},")).collect();
    assert!(recognise(many.as_bytes()).is_err());
}
