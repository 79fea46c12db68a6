//! Contexts that are longer than the model's.
//!
//! A recorded session may have been longer than the model that is being sized allows: prompt and
//! output together do not fit. Nothing is trimmed in silence: the call is rejected, as vLLM
//! rejects it, or the agent is taken to have compacted its context first, as agents do. After a
//! compaction the same session goes on from the shorter context: later prompts are shorter by as
//! much.

use super::workload::CallPlan;
use crate::config::scenario::OnOverflow;
use crate::units::Tokens;

/// Tokens of a prompt after a compaction: the median that coding agents show.
pub const COMPACTED_PROMPT: Tokens = Tokens(37_000);

/// How a call's context differs from the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Tokens of the prompt that is sent.
    pub prompt: Tokens,
    /// Leading tokens of the base that it repeats.
    pub kept: Tokens,
    /// Tokens by which the prompt is shorter than recorded.
    pub shorter: Tokens,
    /// Where it is shorter: leading tokens that no compaction has touched.
    pub untouched: Tokens,
    /// Leading tokens that come from a context shared between sessions.
    pub shared: Tokens,
    /// What happened to it.
    pub verdict: Verdict,
}

/// What happened to a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    #[default]
    Fits,
    /// It was compacted.
    Compacted,
    /// It cannot be sent.
    Rejected,
}

impl Fit {
    /// Of the shared context that this call continues.
    #[must_use]
    pub fn of_context(call: &CallPlan) -> Self {
        Self { shared: call.kept(), ..Self::default() }
    }
}

/// Fits a call of a plan, see [`fit`].
#[must_use]
pub fn fit_call(call: &CallPlan, base: &Fit, rule: OnOverflow, max_model_len: Tokens) -> Fit {
    fit(call.prompt(), call.kept(), call.output(), base, rule, max_model_len)
}

/// Fits a recorded call into a context of `max_model_len` tokens. `base` is how its base's context
/// was fitted.
#[must_use]
pub fn fit(
    recorded_prompt: Tokens,
    recorded_kept: Tokens,
    output: Tokens,
    base: &Fit,
    rule: OnOverflow,
    max_model_len: Tokens,
) -> Fit {
    // Inside the part that a compaction replaced, what is repeated is the end of the context.
    let kept = if recorded_kept <= base.untouched || base.shorter == Tokens::ZERO {
        recorded_kept
    } else {
        recorded_kept.saturating_sub(base.shorter).max(base.untouched)
    };
    let shorter = recorded_kept - kept;
    let fit = Fit {
        // All of it may have gone with what was replaced; a call is sent with a token at least.
        prompt: (recorded_prompt - shorter).max(Tokens(1)),
        kept,
        shorter,
        untouched: base.untouched,
        shared: base.shared.min(kept),
        verdict: Verdict::Fits,
    };
    if fit.prompt + output <= max_model_len {
        return fit;
    }
    let helps = COMPACTED_PROMPT < fit.prompt && COMPACTED_PROMPT + output <= max_model_len;
    if rule == OnOverflow::Reject || !helps {
        return Fit { verdict: Verdict::Rejected, ..fit };
    }
    let kept = fit.shared.min(COMPACTED_PROMPT);
    Fit {
        prompt: COMPACTED_PROMPT,
        kept,
        shorter: recorded_prompt - COMPACTED_PROMPT,
        untouched: kept,
        shared: kept,
        verdict: Verdict::Compacted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Tokens = Tokens(100_000);

    fn base(shared: u64) -> Fit {
        Fit { shared: Tokens(shared), ..Fit::default() }
    }

    #[test]
    fn a_prompt_that_was_all_replaced_keeps_one_token() {
        let base = Fit { shorter: Tokens(10_943), ..Fit::default() };
        let same = fit(Tokens(2_224), Tokens(2_224), Tokens(1), &base, OnOverflow::Compact, LIMIT);
        assert_eq!((same.prompt, same.kept, same.verdict), (Tokens(1), Tokens(0), Verdict::Fits));
    }

    #[test]
    fn a_context_that_just_fits_is_as_recorded() {
        let reject = OnOverflow::Reject;
        let fit = fit(Tokens(99_600), Tokens(90_000), Tokens(400), &base(0), reject, LIMIT);
        assert_eq!(
            (fit.prompt, fit.kept, fit.verdict),
            (Tokens(99_600), Tokens(90_000), Verdict::Fits)
        );
    }

    #[test]
    fn a_longer_one_is_rejected_or_compacted_to_its_shared_prefix() {
        let call =
            |rule| fit(Tokens(99_601), Tokens(90_000), Tokens(400), &base(15_000), rule, LIMIT);
        assert_eq!(call(OnOverflow::Reject).verdict, Verdict::Rejected);
        let compacted = call(OnOverflow::Compact);
        assert_eq!(compacted.verdict, Verdict::Compacted);
        assert_eq!((compacted.prompt, compacted.kept), (Tokens(37_000), Tokens(15_000)));
        assert_eq!(compacted.shorter, Tokens(62_601));
    }

    #[test]
    fn the_session_goes_on_from_the_compacted_context() {
        let at = |prompt, kept, base: &Fit| {
            fit(Tokens(prompt), Tokens(kept), Tokens(500), base, OnOverflow::Compact, LIMIT)
        };
        let compacted = at(100_000, 90_000, &base(15_000));
        // It repeats the whole previous context (and its output of 500) and adds 1,000.
        let next = at(101_500, 100_500, &compacted);
        assert_eq!((next.prompt, next.kept), (Tokens(38_500), Tokens(37_500)));
        // One that keeps the shared prefix only is as recorded.
        let fresh = at(20_000, 15_000, &next);
        assert_eq!((fresh.prompt, fresh.kept), (Tokens(20_000), Tokens(15_000)));
        // One that drops the last 10,000 tokens keeps the rest of the compacted context.
        let dropped = at(95_000, 90_000, &next);
        assert_eq!((dropped.prompt, dropped.kept), (Tokens(32_000), Tokens(27_000)));
    }

    #[test]
    fn a_context_too_small_for_a_compaction_rejects() {
        let (prompt, none, limit) = (Tokens(50_000), Tokens::ZERO, Tokens(37_400));
        let fit = fit(prompt, none, Tokens(500), &base(0), OnOverflow::Compact, limit);
        assert_eq!(fit.verdict, Verdict::Rejected);
    }
}
