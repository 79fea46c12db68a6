//! What measured attention kernels contain and the formula's term of attention does not.

/// Time of a layer's decode kernel that no context changes, in ms: the kernel's start and its end.
/// The formula has it in the fixed time of a layer, a table of kernels in every row, so a
/// comparison adds it to the term.
///
/// Chosen when attention was fitted to the tables of H100 and H200. There, one sequence at 1,024
/// tokens takes 12.3 to 16.4 us a layer besides its context, 13.4 us in the mean; on B200 it is 9
/// to 11 us.
pub const KERNEL_START_MS: f64 = 0.014;
