//! The normal distribution's quantiles and shares.

/// The number that a share `u` of standard normal draws does not exceed, to 16 digits: the
/// rational functions of M. J. Wichura, Applied Statistics 37 (1988), algorithm AS 241.
pub(super) fn quantile(u: f64) -> f64 {
    let q = u - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(0.180_625 - q * q, &CENTRE.0, &CENTRE.1);
    }
    let tail = if q < 0.0 { u } else { 1.0 - u };
    let r = (-tail.max(f64::MIN_POSITIVE).ln()).sqrt();
    let value = match r <= 5.0 {
        true => ratio(r - 1.6, &MIDDLE.0, &MIDDLE.1),
        false => ratio(r - 5.0, &FAR.0, &FAR.1),
    };
    value.copysign(q)
}

/// The share of standard normal draws below `score`, to about 10^-7: a rational function of
/// C. Hastings (Approximations for Digital Computers, 1955; number 26.2.17 in the Handbook of
/// Mathematical Functions).
pub(super) fn share_below(score: f64) -> f64 {
    const SCALE: f64 = 0.231_641_9;
    const TERMS: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + SCALE * score.abs());
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let density = (-score * score / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let above = density * sum;
    if score > 0.0 { 1.0 - above } else { above }
}

fn ratio(x: f64, above: &[f64; 8], below: &[f64; 8]) -> f64 {
    let value = |terms: &[f64; 8]| terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
    value(above) / value(below)
}

type Pair = ([f64; 8], [f64; 8]);

const CENTRE: Pair = (
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_854,
    ],
);

const MIDDLE: Pair = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);

const FAR: Pair = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_445_8e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_tables() {
        // The first two are the check values of the algorithm's publication.
        for (u, expected) in [
            (0.25, -0.674_489_750_196_081_7),
            (1e-20, -9.262_340_089_798_408),
            (0.975, 1.959_963_984_540_054),
            (0.9, super::super::Z90),
            (0.5, 0.0),
        ] {
            assert!((quantile(u) - expected).abs() < 1e-13, "{u}: {}", quantile(u));
        }
    }

    #[test]
    fn share_and_quantile_undo_one_another() {
        for step in 1..1_000 {
            let u = f64::from(step) / 1_000.0;
            assert!((share_below(quantile(u)) - u).abs() < 2e-7, "{u}");
        }
    }
}
