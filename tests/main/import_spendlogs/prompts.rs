//! What stored requests tell besides the columns: messages, and headers that name agents.

use serde_json::{Value, json};

use super::*;

fn read(rows: &[Value], options: &Options) -> Import {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    fs::write(&file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    import(&[file], options).unwrap()
}

fn kept() -> Options {
    Options { keep_ids: true, ..options() }
}

mod agents {
    use super::*;

    /// A call of a second that starts `start` seconds into the hour, with one stored header.
    fn row(session: &str, start: u32, prompt: u64, header: &str, value: &str) -> Value {
        json!({
            "request_id": format!("chatcmpl-{session}-{start:032}"), "session_id": session,
            "call_type": "acompletion", "prompt_tokens": prompt, "completion_tokens": 10,
            "startTime": format!("2026-11-29T16:{:02}:{:02}Z", start / 60, start % 60),
            "endTime": format!("2026-11-29T16:{:02}:{:02}Z", start / 60, start % 60 + 1),
            "metadata": {}, "model_group": "m",
            "proxy_server_request": {"metadata": {"headers": {header: value}}}
        })
    }

    const AGENT: &str = "x-claude-code-agent-id";

    /// Prompts of three contexts that grow as one would.
    fn interleaved(header: &str, main: &str) -> Vec<Value> {
        let call = |at, prompt, agent| row("s", at, prompt, header, agent);
        vec![
            call(0, 1_000, main),
            call(2, 1_100, "a"),
            call(4, 1_200, main),
            call(6, 1_300, "b"),
            call(8, 1_400, "a"),
        ]
    }

    fn lanes_of(import: &Import) -> Vec<u32> {
        import.trace.sessions[0].calls.iter().map(|call| call.lane).collect()
    }

    #[test]
    fn agents_of_a_session_are_lanes_of_it_however_their_prompts_grow() {
        for header in [AGENT, "x-session-id"] {
            let import = read(&interleaved(header, ""), &kept());
            let [session] = &import.trace.sessions[..] else { panic!("one session") };
            assert_eq!(&*session.id, "s");
            assert_eq!(lanes_of(&import), [0, 1, 0, 2, 1], "{header}");
            assert_eq!((import.report.agents, import.report.child_sessions), (2, 0));
            let causes: Vec<Cause> = session.calls.iter().map(|call| call.cause).collect();
            assert_eq!((causes[1], causes[3]), (Cause::Subagent, Cause::Subagent));
            assert_eq!(session.calls[4].base, Base::Call(1));
            let text = import.report.to_string();
            assert!(text.contains("2 agents are named by headers and are lanes"), "{text}");
        }
        let unknown = read(&interleaved("accept", ""), &kept());
        assert_eq!((lanes_of(&unknown), unknown.report.agents), (vec![0; 5], 0));
    }

    #[test]
    fn where_every_call_has_an_agent_the_first_one_is_the_main_lane() {
        let import = read(&interleaved(AGENT, "main"), &kept());
        assert_eq!((lanes_of(&import), import.report.agents), (vec![0, 1, 0, 2, 1], 2));
        // The session's own id is no agent's.
        let import = read(&interleaved("x-session-id", "s"), &kept());
        assert_eq!((lanes_of(&import), import.report.agents), (vec![0, 1, 0, 2, 1], 2));
    }

    #[test]
    fn ids_of_which_none_is_on_two_calls_are_no_agents() {
        let mut rows = interleaved(AGENT, "");
        for (number, row) in rows.iter_mut().enumerate() {
            row["proxy_server_request"]["metadata"]["headers"][AGENT] = number.to_string().into();
        }
        let import = read(&rows, &kept());
        assert_eq!((lanes_of(&import), import.report.agents), (vec![0; 5], 0));
    }

    #[test]
    fn agents_of_a_child_belong_to_the_session_at_the_root() {
        let mut rows = interleaved(AGENT, "");
        for row in &mut rows {
            row["metadata"] = json!({"spend_logs_metadata": {"parent_session_id": "root"}});
        }
        rows.push(row("root", 1, 5_000, "accept", ""));
        rows.push(row("root", 20, 6_000, "accept", ""));
        for buffer_bytes in [24 << 20, 200] {
            let import = read(&rows, &Options { buffer_bytes, ..kept() });
            let [session] = &import.trace.sessions[..] else { panic!("one session") };
            assert_eq!((&*session.id, session.calls.len()), ("root", 7));
            let report = &import.report;
            assert_eq!((report.agents, report.child_sessions, report.lanes), (2, 1, 4));
        }
    }
}

mod ends_of_messages {
    use super::*;

    /// What calls keep of the one before them, and hit.
    fn kept_and_cached(import: &Import) -> Vec<(u64, u64)> {
        let calls = import.trace.sessions.iter().flat_map(|session| &session.calls);
        let continued = calls.filter(|call| matches!(call.base, Base::Call(_)));
        continued.filter_map(|call| Some((call.kept_tokens.0, call.seen_cached?.0))).collect()
    }

    /// The recorded clients put a mark behind the last message of each request that the next one
    /// lacks; the recorded servers hit up to it.
    #[test]
    fn prompts_are_shared_up_to_what_was_dropped_from_the_end_of_the_last_message() {
        for (name, continued, own, more) in
            [("logger-payloads.jsonl.zst", 7, 5, 2), ("set-b-prompts-on.csv.gz", 9, 4, 3)]
        {
            let import = with_ids(name);
            let calls = kept_and_cached(&import);
            assert_eq!(import.report.evidence.changed_ends, continued, "{name}");
            assert_eq!(calls.len() as u64, continued, "{name}");
            // A hit ends with a block of 16 tokens. Longer ones are on what another session had
            // sent; of the others a part was lost.
            let within = |&&(kept, cached): &&_| kept >= cached && kept - cached < 16;
            assert_eq!(calls.iter().filter(within).count(), own, "{name}: {calls:?}");
            let longer = |&&(kept, cached): &&_| kept < cached;
            assert_eq!(calls.iter().filter(longer).count(), more, "{name}: {calls:?}");
        }
    }

    #[test]
    fn texts_that_were_cut_are_counted_as_such() {
        let stored = with_ids("set-b-prompts-on.csv.gz").report;
        assert!(stored.evidence.cut_messages > 0, "{:?}", stored.evidence);
        assert!(stored.to_string().contains("rest on texts that LiteLLM had cut"));
        let logged = with_ids("logger-payloads.jsonl.zst").report;
        assert_eq!(logged.evidence.cut_messages, 0, "loggers get whole texts");
    }
}
