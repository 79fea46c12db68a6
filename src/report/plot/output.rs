//! A figure as a file: an SVG that carries its face, and a PNG drawn from it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use resvg::{tiny_skia, usvg};

use super::canvas::UNITS;
use super::style::{Face, REGULAR, SEMIBOLD};
use super::{Figure, draw};
use crate::diag::{Error, Result, nearest};

/// Endings of the files that a figure can be written to.
const ENDINGS: [&str; 3] = ["svg", "png", "csv"];
/// Pixels of a PNG a pixel of the figure, so that it is crisp on fine screens and in print.
const PNG_SCALE: f64 = 3.0;

impl Figure {
    /// The figure as an SVG document, face included.
    #[must_use]
    pub fn svg(&self) -> String {
        let (drawn, width, height) = draw::draw(self);
        let body = drawn.split_once(">\n").map_or("", |(_, body)| body);
        let face = |face: Face, bytes: &[u8]| {
            let data = STANDARD.encode(bytes);
            let name = face.family();
            format!("@font-face{{font-family:\"{name}\";src:url(data:font/ttf;base64,{data})}}\n")
        };
        let faces = face(Face::Regular, REGULAR) + &face(Face::Semibold, SEMIBOLD);
        let (right, bottom) = (width * UNITS, height * UNITS);
        format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {right} {bottom}\" \
             xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">\n<title>{}</title>\n\
             <style>\n{faces}</style>\n{body}",
            escaped(&self.title)
        )
    }

    /// The figure as a PNG picture.
    ///
    /// # Errors
    /// A figure that is too large for a picture.
    pub fn png(&self) -> Result<Vec<u8>> {
        let broken = |why: &dyn std::fmt::Display| Error::new(format!("draw the PNG: {why}"));
        let mut options = usvg::Options::default();
        for bytes in [REGULAR, SEMIBOLD] {
            options.fontdb_mut().load_font_data(bytes.to_vec());
        }
        let (drawn, width, height) = draw::draw(self);
        let tree = usvg::Tree::from_str(&drawn, &options).map_err(|error| broken(&error))?;
        let size = ((width * PNG_SCALE).round() as u32, (height * PNG_SCALE).round() as u32);
        let mut picture = tiny_skia::Pixmap::new(size.0, size.1)
            .ok_or_else(|| broken(&format!("{} x {} pixels are too many", size.0, size.1)))?;
        let scale = (PNG_SCALE / UNITS) as f32;
        resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut picture.as_mut());
        picture.encode_png().map_err(|error| broken(&error))
    }

    /// Everything that is drawn, as CSV: a row a point, with the least and the most of its band; of
    /// rows 1 where they hold and 0 where not; marks at the end, without a value.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    pub fn points(&self) -> Result<Vec<u8>> {
        let failed = |error: csv::Error| Error::new(format!("cannot write the points: {error}"));
        let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
        let mut table = csv::Writer::from_writer(Vec::new());
        let header = ["panel", "line", &self.axis.label, "value", "least", "most"];
        table.write_record(header).map_err(failed)?;
        for panel in &self.panels {
            for (series, point) in panel
                .series
                .iter()
                .flat_map(|series| series.points.iter().map(move |point| (series, point)))
            {
                let (least, most) = point.band.unwrap_or((f64::NAN, f64::NAN));
                let [x, y, least, most] =
                    [self.axis.written(point.x), number(point.y), number(least), number(most)];
                let row = [&panel.name, &series.name, &x, &y, &least, &most];
                table.write_record(row).map_err(failed)?;
            }
            for row in &panel.rows {
                for (x, holds) in &row.holds {
                    let (x, holds) = (self.axis.written(*x), u8::from(*holds).to_string());
                    let row = [&*panel.name, &row.name, &x, &holds, "", ""];
                    table.write_record(row).map_err(failed)?;
                }
            }
        }
        for mark in &self.marks {
            let row = ["marks", &mark.name, &self.axis.written(mark.x), "", "", ""];
            table.write_record(row).map_err(failed)?;
        }
        table.into_inner().map_err(|error| failed(error.into_error().into()))
    }

    /// The figure in the form that a file's name asks for.
    ///
    /// # Errors
    /// A name that ends in none of `.svg`, `.png` and `.csv`.
    pub fn encoded(&self, path: &Path) -> Result<Vec<u8>> {
        match Self::check_name(path)? {
            "svg" => Ok(self.svg().into_bytes()),
            "csv" => self.points(),
            _ => self.png(),
        }
    }

    /// The form that a file's name asks for.
    ///
    /// # Errors
    /// A name that ends in none of `.svg`, `.png` and `.csv`.
    pub fn check_name(path: &Path) -> Result<&'static str> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ENDINGS.into_iter().find(|known| *known == ending).ok_or_else(|| {
            let error = Error::found(path.display(), "a name that ends in .svg, .png or .csv");
            match nearest(ending, ENDINGS) {
                Some(near) => error.help(format!("did you mean .{near}?")),
                None => error,
            }
        })
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
