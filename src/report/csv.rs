//! Single calls and tasks as CSV: everything the run recorded, the warm-up included, with a column
//! that says what the figures are made of.

use std::io::Write;

use csv::{Error, Writer};

use crate::fleet::Run;
use crate::fleet::workload::Workload;
use crate::observe::records::{CallOutcome, CallRecord, Place};
use crate::units::Time;

/// Columns of the table of calls.
const CALL_COLUMNS: [&str; 24] = [
    "play",
    "session",
    "call",
    "lane",
    "model",
    "replica",
    "outcome",
    "in_window",
    "dispatched_s",
    "queued_s",
    "scheduled_s",
    "first_token_s",
    "last_token_s",
    "ended_s",
    "prompt_tokens",
    "cached_tokens",
    "infinite_cache_tokens",
    "prefilled_tokens",
    "output_tokens",
    "preemptions",
    "tokens_lost",
    "compacted",
    "refusals",
    "places",
];

/// Writes a row per call, in the order in which they ended. `ids` are the sessions' ids.
///
/// # Errors
/// If the output cannot be written.
pub fn calls(run: &Run, workload: &Workload, ids: &[&str], out: impl Write) -> Result<(), Error> {
    let mut table = Writer::from_writer(out);
    table.write_record(CALL_COLUMNS)?;
    for call in &run.records.calls {
        let plan = &workload.sessions[call.session as usize].calls[call.call as usize];
        table.write_record(call_row(run, call, plan.lane, workload, plan.model, ids))?;
    }
    table.flush()?;
    Ok(())
}

fn call_row(
    run: &Run,
    call: &CallRecord,
    lane: u32,
    workload: &Workload,
    model: u32,
    ids: &[&str],
) -> [String; 24] {
    let outcome = match call.outcome {
        CallOutcome::Completed => "completed",
        CallOutcome::Rejected => "rejected",
        CallOutcome::Refused => "refused",
        CallOutcome::RecordedFailure => "recorded_failure",
    };
    // A call that reached no engine has no times there.
    let engine = |time: Time| match call.outcome {
        CallOutcome::Completed => seconds(time),
        _ => String::new(),
    };
    let places = Place::ALL.iter().filter(|(kind, _)| call.place.is(*kind)).map(|(_, name)| *name);
    [
        call.play.to_string(),
        ids[call.session as usize].to_owned(),
        call.call.to_string(),
        lane.to_string(),
        workload.models[model as usize].to_string(),
        call.replica.map(|replica| replica.to_string()).unwrap_or_default(),
        outcome.to_owned(),
        run.window.holds(call.ended).to_string(),
        seconds(call.dispatched),
        engine(call.queued),
        engine(call.scheduled),
        engine(call.first_token),
        engine(call.last_token),
        seconds(call.ended),
        call.prompt.to_string(),
        call.cached.to_string(),
        call.ceiling.to_string(),
        call.prefilled.to_string(),
        call.output.to_string(),
        call.preemptions.to_string(),
        call.lost.to_string(),
        call.compacted.to_string(),
        call.refusals.to_string(),
        places.collect::<Vec<_>>().join(";"),
    ]
}

/// Writes a row per task, in the order in which they ended; `stretches` belong to them.
///
/// # Errors
/// If the output cannot be written.
pub fn tasks(
    run: &Run,
    stretches: &[Option<f64>],
    ids: &[&str],
    out: impl Write,
) -> Result<(), Error> {
    let mut table = Writer::from_writer(out);
    table.write_record([
        "play",
        "session",
        "in_window",
        "failed",
        "started_s",
        "ended_s",
        "session_s",
        "task_s",
        "task_llm_s",
        "stretch",
        "turns",
        "calls",
    ])?;
    for (task, stretch) in run.records.tasks.iter().zip(stretches) {
        table.write_record([
            task.play.to_string(),
            ids[task.session as usize].to_owned(),
            run.window.holds(task.ended).to_string(),
            task.failed.to_string(),
            seconds(task.started),
            seconds(task.ended),
            task.session_span().secs_text(),
            task.task.secs_text(),
            task.task_llm.secs_text(),
            stretch.map(|stretch| format!("{stretch:.6}")).unwrap_or_default(),
            task.turns.to_string(),
            task.calls.to_string(),
        ])?;
    }
    table.flush()?;
    Ok(())
}

fn seconds(time: Time) -> String {
    (time - Time::ZERO).secs_text()
}
