//! Sizes in pixels, colours and faces: the one place for how plots look.

use plotters::style::RGBColor;

/// Width of a figure.
pub(super) const WIDTH: f64 = 760.0;
/// Height of a panel between its lowest and its highest value.
pub(super) const PANEL: f64 = 168.0;
/// Height of a row of a panel that shows what holds where.
pub(super) const ROW: f64 = 21.0;
/// From one panel to the next.
pub(super) const GAP: f64 = 46.0;
/// Left of the panels: the values' ticks.
pub(super) const LEFT: f64 = 64.0;
/// Around everything.
pub(super) const MARGIN: f64 = 22.0;
/// Least and most width right of the panels: the lines' labels.
pub(super) const LABELS: (f64, f64) = (40.0, 230.0);
/// From a line's end to its label.
pub(super) const TO_LABEL: f64 = 9.0;
/// From one line of a paragraph to the next, as a multiple of its size.
pub(super) const LEADING: f64 = 1.28;

/// Sizes of text.
pub(super) const TITLE: f64 = 17.0;
pub(super) const SUBTITLE: f64 = 12.5;
pub(super) const NAME: f64 = 12.5;
pub(super) const TICK: f64 = 11.5;
pub(super) const NOTE: f64 = 10.5;

/// Width of lines, and radius of their marks.
pub(super) const LINE: f64 = 2.0;
pub(super) const MARK: f64 = 3.25;

pub(super) const INK: RGBColor = RGBColor(0x1c, 0x1f, 0x23);
pub(super) const SOFT: RGBColor = RGBColor(0x5a, 0x62, 0x6b);
pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xe9);
pub(super) const BOUND: RGBColor = RGBColor(0x8a, 0x92, 0x9b);
pub(super) const TARGET: RGBColor = RGBColor(0xb0, 0x24, 0x18);

/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008), darkened where they
/// would be faint on white, and ordered so that neighbours differ in lightness.
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x5f, 0x9e),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x8a, 0x63),
    RGBColor(0xb3, 0x55, 0x8a),
    RGBColor(0x1c, 0x1f, 0x23),
    RGBColor(0x3a, 0x9a, 0xd0),
    RGBColor(0xb8, 0x86, 0x00),
];

/// A weight of the face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    Regular,
    Semibold,
}

pub(super) const REGULAR: &[u8] = include_bytes!("fonts/TonnageSans-Regular.ttf");
pub(super) const SEMIBOLD: &[u8] = include_bytes!("fonts/TonnageSans-Semibold.ttf");

impl Face {
    /// Its family, as the files name it.
    pub(super) fn family(self) -> &'static str {
        match self {
            Face::Regular => "Tonnage Sans",
            Face::Semibold => "Tonnage Sans Semibold",
        }
    }
}
