//! Calls by windows of ten minutes.

use crate::units::Span;

const WINDOW: Span = Span::from_secs(600);
/// Later calls are not counted: a year and a half and ten years of starts.
const WINDOWS_MAX: usize = 700_000;

/// Calls of each window, from the start of the trace.
#[derive(Debug, Default)]
pub(super) struct Windows {
    calls: Vec<u64>,
}

impl Windows {
    pub(super) fn call(&mut self, at: Span) {
        let window = (at.0 / WINDOW.0) as usize;
        if window >= WINDOWS_MAX {
            return;
        }
        if window >= self.calls.len() {
            self.calls.resize(window + 1, 0);
        }
        self.calls[window] += 1;
    }

    /// The largest over the mean of all windows before `end`.
    pub(super) fn peak_to_mean(&self, end: Span) -> Option<f64> {
        let windows = (end.0 / WINDOW.0) as usize;
        let inside = &self.calls[..windows.min(self.calls.len())];
        let sum: u64 = inside.iter().sum();
        let peak = *inside.iter().max()?;
        (sum > 0).then(|| peak as f64 * windows as f64 / sum as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_windows_count() {
        let mut windows = Windows::default();
        [10, 20, 700, 5_000].into_iter().for_each(|at| windows.call(Span::from_secs(at)));
        // Three calls in six windows, two of them in the first; the fourth is later.
        assert_eq!(windows.peak_to_mean(Span::from_secs(3_600)), Some(4.0));
        assert_eq!(Windows::default().peak_to_mean(Span::from_secs(3_600)), None);
    }
}
