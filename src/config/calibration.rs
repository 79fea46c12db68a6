//! Calibration files: multipliers of the step time that were fitted to measurements of one
//! deployment, and how well they fit.

use std::path::Path;

use toml::Value;

use super::api_time::ApiTime;
use super::precision::{KvDtype, TorchDtype, WeightPrecision};
use super::{gpus, models};
use crate::diag::{Error, Result};
use crate::document::Document;
use crate::units::Span;

/// What a calibration file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The file as the user named it.
    pub file: String,
    /// The deployment that was measured: the model's name in the catalogue.
    pub model: String,
    /// Its GPU, by its name in the catalogue.
    pub gpu: String,
    /// GPUs of its tensor-parallel group.
    pub tensor_parallel_size: u32,
    /// Its data-parallel ranks.
    pub data_parallel_size: u32,
    /// How its weights are stored.
    pub weights: WeightPrecision,
    /// How its keys and values are stored.
    pub kv_dtype: KvDtype,
    /// On host time and fixed times of a step.
    pub host: f64,
    /// On weights, element-wise work and network.
    pub linear: f64,
    /// On attention, in decode and in prefill.
    pub attention: f64,
    /// Host time of requests, as far as it was told.
    pub api: ApiTimes,
    /// How the fit went.
    pub fit: Fit,
}

/// Host time of requests outside the steps, where measurements told it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApiTimes {
    /// Before the queue, in ms.
    pub request_ms: Option<f64>,
    /// The same for each prompt token, in us.
    pub prompt_token_us: Option<f64>,
    /// After the engine for each output token, in us.
    pub output_token_us: Option<f64>,
}

impl ApiTimes {
    /// To a microsecond, and a hundredth of one for a token.
    #[must_use]
    pub fn rounded(self) -> Self {
        let round = |value: Option<f64>, digits: f64| value.map(|v| (v * digits).round() / digits);
        Self {
            request_ms: round(self.request_ms, 1e3),
            prompt_token_us: round(self.prompt_token_us, 1e2),
            output_token_us: round(self.output_token_us, 1e2),
        }
    }

    /// What was told, and the default of what was not.
    #[must_use]
    pub fn or_default(&self) -> ApiTime {
        let default = ApiTime::default();
        let span = |told: Option<f64>, unit: f64, default: Span| {
            told.map_or(default, |value| Span::from_secs_f64(value * unit))
        };
        ApiTime {
            request: span(self.request_ms, 1e-3, default.request),
            prompt_token: span(self.prompt_token_us, 1e-6, default.prompt_token),
            output_token: span(self.output_token_us, 1e-6, default.output_token),
        }
    }

    fn named(&self) -> [(&'static str, Option<f64>); 3] {
        [
            ("request_ms", self.request_ms),
            ("prompt_token_us", self.prompt_token_us),
            ("output_token_us", self.output_token_us),
        ]
    }
}

/// How well a calibration fits. Errors are shares of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    /// Measurements that it rests on.
    pub points: u64,
    /// Multipliers that were fitted apart: 1 to 3.
    pub multipliers: u64,
    /// Mean absolute error of the time between tokens before.
    pub error_before: f64,
    /// The same after.
    pub error: f64,
    /// The same on points that were left out of the fit in turn; none with a single point.
    pub error_left_out: Option<f64>,
    /// Least of measured over simulated times, less 1.
    pub band_low: f64,
    /// Largest of the same.
    pub band_high: f64,
    /// Fewest and most requests in flight.
    pub seqs: (f64, f64),
    /// Shortest and longest contexts, in tokens.
    pub context: (u64, u64),
}

impl Fit {
    /// The error to expect: that of points left out, else the one before calibration, because one
    /// point alone tells nothing of others.
    #[must_use]
    pub fn expected_error(&self) -> f64 {
        self.error_left_out.unwrap_or(self.error_before)
    }

    /// How far off step times may be: the wider side of the band, at most `most`; none in a file
    /// that names no band.
    #[must_use]
    pub fn step_time_band(&self, most: f64) -> Option<f64> {
        let wider = self.band_low.abs().max(self.band_high.abs());
        (wider > 0.0).then_some(wider.min(most))
    }
}

/// Every key of a calibration file, with its meaning.
pub const KEYS: &[(&str, &str)] = &[
    ("model", "the model that was measured"),
    ("gpu", "on which GPU"),
    ("tensor_parallel_size", "GPUs of the group"),
    ("data_parallel_size", "ranks that share the experts, each of so many GPUs; 1"),
    ("quantization", "precision of the weights"),
    ("kv_cache_dtype", "precision of the KV cache"),
    ("factors.host", "multiplies host time and fixed times of a step"),
    ("factors.linear", "multiplies weights, element-wise work and network"),
    ("factors.attention", "multiplies attention"),
    ("api.request_ms", "host time of a request before its queue, if it was told"),
    ("api.prompt_token_us", "the same per prompt token"),
    ("api.output_token_us", "host time per output token, after the engine"),
    ("fit.points", "measurements that the factors rest on"),
    ("fit.multipliers", "factors that were fitted apart, 1 to 3"),
    ("fit.error_before", "mean error of the time between tokens without calibration, as a share"),
    ("fit.error", "the same with it"),
    ("fit.error_left_out", "the same on points left out of the fit in turn"),
    ("fit.band_low", "least of measured over simulated times, less 1"),
    ("fit.band_high", "largest of the same"),
    ("fit.seqs_min", "fewest requests in flight among the points"),
    ("fit.seqs_max", "most of them"),
    ("fit.context_min", "shortest context among the points, in tokens"),
    ("fit.context_max", "longest of them"),
];

const MAX_TOKENS: u64 = 1 << 40;

impl Calibration {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, with the place.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::io(path, "read the calibration", &error))?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is wrong with it, with the place.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let document = Document::parse(text, file)?;
        let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
        document.check_keys(&keys, &[])?;
        let missing = |key: &str| document.at(key, Error::new("this key is needed"));
        let name = |key: &str| document.text(key)?.ok_or_else(|| missing(key));
        let at = |key: &'static str| move |error: Error| (key, error);
        let placed = |(key, error): (&'static str, Error)| document.at(key, error);
        let factor = |key: &str| document.number(key, 0.01, 100.0)?.ok_or_else(|| missing(key));
        let share = |key: &str| Ok::<_, Error>(document.number(key, -1.0, 100.0)?.unwrap_or(0.0));
        let tokens = |key: &str| Ok::<_, Error>(document.whole(key, 0, MAX_TOKENS)?.unwrap_or(0));
        let seqs = |key: &str| Ok::<_, Error>(document.number(key, 0.0, 1e9)?.unwrap_or(0.0));
        let weights = WeightPrecision::parse(&name("quantization")?);
        let kv_dtype = KvDtype::parse(&name("kv_cache_dtype")?, TorchDtype::Bf16);
        let gpu = gpus::find(&name("gpu")?).map_err(at("gpu")).map_err(placed)?;
        let tp = document.whole("tensor_parallel_size", 1, 1_024)?;
        let dp = document.whole("data_parallel_size", 1, 1_024)?.unwrap_or(1);
        Ok(Self {
            file: file.to_owned(),
            model: name("model")?,
            gpu: gpu.name.clone(),
            tensor_parallel_size: tp.ok_or_else(|| missing("tensor_parallel_size"))? as u32,
            data_parallel_size: dp as u32,
            weights: weights.map_err(at("quantization")).map_err(placed)?,
            kv_dtype: kv_dtype.map_err(at("kv_cache_dtype")).map_err(placed)?,
            host: factor("factors.host")?,
            linear: factor("factors.linear")?,
            attention: factor("factors.attention")?,
            api: ApiTimes {
                request_ms: document.number("api.request_ms", 0.0, 1e6)?,
                prompt_token_us: document.number("api.prompt_token_us", 0.0, 1e6)?,
                output_token_us: document.number("api.output_token_us", 0.0, 1e6)?,
            },
            fit: Fit {
                points: document.whole("fit.points", 1, 1 << 20)?.unwrap_or(1),
                multipliers: document.whole("fit.multipliers", 1, 3)?.unwrap_or(1),
                error_before: share("fit.error_before")?,
                error: share("fit.error")?,
                error_left_out: document.number("fit.error_left_out", 0.0, 100.0)?,
                band_low: share("fit.band_low")?,
                band_high: share("fit.band_high")?,
                seqs: (seqs("fit.seqs_min")?, seqs("fit.seqs_max")?),
                context: (tokens("fit.context_min")?, tokens("fit.context_max")?),
            },
        })
    }

    /// The text of its file; `comment` stands above it.
    #[must_use]
    pub fn to_toml(&self, comment: &str) -> String {
        let Fit { points, multipliers, error_before, error, seqs, context, .. } = self.fit;
        let text = |text: &str| Value::String(text.to_owned()).to_string();
        let left_out = self.fit.error_left_out;
        let left_out = left_out.map_or(String::new(), |e| format!("error_left_out = {e:?}\n"));
        let ranks = match self.data_parallel_size {
            1 => String::new(),
            ranks => format!("data_parallel_size = {ranks}\n"),
        };
        let api = self.api.named().map(|(key, value)| {
            value.map_or(String::new(), |value| format!("{key} = {value:?}\n"))
        });
        let api = match api.concat() {
            none if none.is_empty() => none,
            some => format!("[api]\n{some}\n"),
        };
        let comment: String = comment.lines().map(|line| format!("# {line}\n")).collect();
        format!(
            "{comment}model = {}\ngpu = {}\ntensor_parallel_size = {}\n{ranks}quantization = {}\n\
             kv_cache_dtype = {}\n\n[factors]\nhost = {:?}\nlinear = {:?}\nattention = {:?}\n\n\
             {api}[fit]\npoints = {points}\nmultipliers = {multipliers}\n\
             error_before = {error_before:?}\nerror = {error:?}\n{left_out}band_low = {:?}\n\
             band_high = {:?}\nseqs_min = {:?}\nseqs_max = {:?}\ncontext_min = {}\n\
             context_max = {}\n",
            text(&self.model),
            text(&self.gpu),
            self.tensor_parallel_size,
            text(self.weights.name()),
            text(self.kv_dtype.name()),
            self.host,
            self.linear,
            self.attention,
            self.fit.band_low,
            self.fit.band_high,
            seqs.0,
            seqs.1,
            context.0,
            context.1,
        )
    }

    /// Refuses a deployment other than the one that was measured: GPUs of a tensor-parallel group
    /// and data-parallel ranks go together.
    ///
    /// # Errors
    /// What differs.
    pub fn check(
        &self,
        model: &str,
        gpu: &str,
        [tp, dp]: [u32; 2],
        weights: WeightPrecision,
        kv_dtype: KvDtype,
    ) -> Result<()> {
        let known = models::find(&self.model).map_or(self.model.clone(), |found| found.name);
        let differs = [
            ("model", known, model.to_owned()),
            ("gpu", self.gpu.clone(), gpu.to_owned()),
            ("tensor_parallel_size", self.tensor_parallel_size.to_string(), tp.to_string()),
            ("data_parallel_size", self.data_parallel_size.to_string(), dp.to_string()),
            ("quantization", self.weights.name().to_owned(), weights.name().to_owned()),
            // The two 16-bit formats take the same time.
            (
                "kv_cache_dtype",
                format!("{} bytes", self.kv_dtype.bytes()),
                format!("{} bytes", kv_dtype.bytes()),
            ),
        ];
        match differs.into_iter().find(|(_, measured, wanted)| measured != wanted) {
            None => Ok(()),
            Some((key, measured, wanted)) => Err(Error::new(format!(
                "{} was measured with {key} = {measured}, and this is {wanted}",
                self.file
            ))
            .help("factors do not carry over to other deployments: measure this one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Calibration {
        Calibration {
            file: "c.toml".to_owned(),
            model: "Llama-3.1-8B".to_owned(),
            gpu: "H100-SXM".to_owned(),
            tensor_parallel_size: 1,
            data_parallel_size: 2,
            weights: WeightPrecision::Bits16,
            kv_dtype: KvDtype::Bf16,
            host: 1.25,
            linear: 0.97,
            attention: 1.0,
            api: ApiTimes {
                request_ms: Some(9.5),
                prompt_token_us: Some(1.75),
                output_token_us: Some(40.0),
            },
            fit: Fit {
                points: 5,
                multipliers: 2,
                error_before: 0.08,
                error: 0.02,
                error_left_out: Some(0.03),
                band_low: -0.04,
                band_high: 0.05,
                seqs: (1.0, 64.0),
                context: (900, 9_000),
            },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = example().to_toml("made by a test\non two lines");
        assert!(text.starts_with("# made by a test\n# on two lines\nmodel = \"Llama-3.1-8B\"\n"));
        assert_eq!(Calibration::parse(&text, "c.toml"), Ok(example()));
        let keys = KEYS.iter().map(|(key, _)| key.rsplit('.').next().unwrap());
        assert!(keys.into_iter().all(|key| text.contains(&format!("{key} = "))), "{text}");
        let bare = Calibration { api: ApiTimes::default(), ..example() };
        let text = bare.to_toml("");
        assert!(!text.contains("[api]"), "{text}");
        assert_eq!(Calibration::parse(&text, "c.toml"), Ok(bare));
    }

    #[test]
    fn the_wider_side_of_the_band_counts() {
        let fit = example().fit;
        assert_eq!(fit.step_time_band(0.5), Some(0.05));
        assert_eq!(Fit { band_low: -0.7, ..fit }.step_time_band(0.5), Some(0.5));
        assert_eq!(Fit::default().step_time_band(0.5), None);
    }

    #[test]
    fn another_deployment_is_refused() {
        let check = |gpu, kv| {
            let (model, weights) = ("Llama-3.1-8B", WeightPrecision::Bits16);
            example().check(model, gpu, [1, 2], weights, kv).map_err(|error| error.to_string())
        };
        assert_eq!(check("H100-SXM", KvDtype::Fp16), Ok(()));
        let error = check("H200-SXM", KvDtype::Bf16).unwrap_err();
        assert!(error.contains("measured with gpu = H100-SXM, and this is H200-SXM"), "{error}");
        assert!(check("H100-SXM", KvDtype::Fp8).unwrap_err().contains("kv_cache_dtype"));
    }

    #[test]
    fn wrong_files_say_where() {
        let text = example().to_toml("").replace("host", "hots");
        let error = Calibration::parse(&text, "c.toml").unwrap_err().to_string();
        assert!(error.contains("did you mean `factors.host`?"), "{error}");
        let text = example().to_toml("").replace("linear = 0.97", "linear = -1");
        let error = Calibration::parse(&text, "c.toml").unwrap_err().to_string();
        assert!(error.starts_with("c.toml:10:1: factors.linear: found `-1`"), "{error}");
    }
}
