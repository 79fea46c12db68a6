//! From the text of a command line to its flags, each with its value.

use super::tables::{Flag, GONE, Gone, SHORT, Takes};
use crate::diag::{Error, Result, nearest, shown};

/// What stands where a command line is expected.
const EXPECTED: &str = "a line such as `vllm serve MODEL --tensor-parallel-size 2`";
/// Variables before the command that are vLLM's own and change no figure.
const HARMLESS_VARIABLES: [&str; 9] = [
    "VLLM_API_KEY",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_DO_NOT_TRACK",
    "VLLM_HOST_IP",
    "VLLM_LOGGING_LEVEL",
    "VLLM_NO_USAGE_STATS",
    "VLLM_PORT",
    // The engine of the first generation is gone: this says what holds anyway.
    "VLLM_USE_V1",
];

/// A flag as it was given.
#[derive(Debug)]
pub struct Given {
    /// The flag.
    pub flag: Flag,
    /// Its full name with the dashes.
    pub name: String,
    /// Its value: what follows it, or `true` or `false` for a switch.
    pub value: String,
    /// Whether it sets a part of its value only, as `--compilation-config.mode 3` does.
    pub is_part: bool,
}

/// A command line, taken apart.
#[derive(Debug, Default)]
pub struct Words {
    /// The model named without a flag.
    pub model: Option<String>,
    /// The flags in their order.
    pub flags: Vec<Given>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Words {
    /// Takes a command line apart.
    ///
    /// # Errors
    /// What is no command line of vLLM's server, a flag that does not exist, or a missing value.
    pub fn read(text: &str) -> Result<Self> {
        let words = shell_words::split(&text.replace("\r\n", "\n"))
            .map_err(|_| Error::new("a quote is not closed"))?;
        if let Some(word) = words.iter().find(|word| is_expansion(word)) {
            return Err(Error::new(format!("`{word}` is a variable, which is not looked up"))
                .help("write its value into the line"));
        }
        let mut read = Self::default();
        let mut rest = read.skip_variables(&words)?;
        rest = read.skip_command(rest)?;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            if is_flag(word) {
                rest = read.take_flag(word, after)?;
            } else if read.model.is_none() {
                read.model = Some(word.clone());
            } else {
                let text = format!("`{word}` follows no flag; only the model stands by itself");
                return Err(Error::new(text));
            }
        }
        Ok(read)
    }

    /// `CUDA_VISIBLE_DEVICES=0,1 vllm serve ...`
    fn skip_variables<'a>(&mut self, words: &'a [String]) -> Result<&'a [String]> {
        let name = |word: &'a String| {
            let name = word.split_once('=')?.0;
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (is_name && !name.is_empty()).then_some(name)
        };
        let names: Vec<&str> = words.iter().map_while(name).collect();
        for name in &names {
            if name.starts_with("VLLM_") && !HARMLESS_VARIABLES.contains(name) {
                let text = format!("the variable `{name}` may change the engine; not modelled");
                return Err(Error::new(text).help("leave it out to simulate the engine without it"));
            }
        }
        if !names.is_empty() {
            self.notes.push(format!("ignored variables of the vllm line: {}", names.join(", ")));
        }
        Ok(&words[names.len()..])
    }

    /// `vllm serve`, the older module, or nothing where the flags stand alone, as in a container's
    /// arguments.
    fn skip_command<'a>(&mut self, words: &'a [String]) -> Result<&'a [String]> {
        let program = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
        let heads: Vec<String> = words.iter().take(3).map(|word| program(word)).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        match heads.as_slice() {
            ["vllm", "serve", ..] => Ok(&words[2..]),
            [python, "-m", "vllm.entrypoints.openai.api_server"]
                if python.starts_with("python") =>
            {
                let text = "python -m vllm.entrypoints.openai.api_server is deprecated; vllm \
                            serve takes the same flags";
                self.notes.push(text.to_owned());
                Ok(&words[3..])
            }
            [first, ..] if first.starts_with('-') => Ok(words),
            [] => Err(Error::found("", EXPECTED)),
            found => Err(Error::found(found.join(" "), EXPECTED)),
        }
    }

    fn take_flag<'a>(&mut self, word: &str, rest: &'a [String]) -> Result<&'a [String]> {
        let (written, inline) = match word.split_once('=') {
            Some((written, value)) => (written, Some(value)),
            None => (word, None),
        };
        let (name, glued) = full_name(written);
        let (base, part) = match name.split_once('.') {
            Some((base, part)) => (base, Some(part)),
            None => (name.as_str(), None),
        };
        let (flag, is_negated) = find(base, written)?;
        let shown = format!("--{}", if is_negated { &base[3..] } else { base });
        let value = inline.map(str::to_owned).or(glued);
        let takes = if part.is_some() { Takes::One } else { flag.takes() };
        let followers = rest.iter().take_while(|word| !is_flag(word)).count();
        let (value, used) = match (takes, value) {
            (Takes::Switch, None) => ((!is_negated).to_string(), 0),
            (Takes::Switch, Some(value)) => {
                let text = format!("takes no value, found `{value}`");
                let help = format!("write {shown} or --no-{base}", base = &shown[2..]);
                return Err(Error::new(text).in_field(flag_field(&shown)).help(help));
            }
            (Takes::Many, Some(first)) => {
                let all: Vec<&str> = std::iter::once(first.as_str())
                    .chain(rest[..followers].iter().map(String::as_str))
                    .collect();
                (all.join(" "), followers)
            }
            (_, Some(value)) => (value, 0),
            (Takes::Maybe, None) => (rest[..followers.min(1)].join(" "), followers.min(1)),
            (Takes::One | Takes::Many, None) if followers == 0 => {
                return Err(Error::new("its value is missing").in_field(flag_field(&shown)));
            }
            (Takes::One, None) => (rest[0].clone(), 1),
            (Takes::Many, None) => (rest[..followers].join(" "), followers),
        };
        self.flags.push(Given { flag, name: shown, value, is_part: part.is_some() });
        Ok(&rest[used..])
    }
}

/// How errors name a flag.
pub fn flag_field(name: &str) -> String {
    format!("vllm serve {name}")
}

/// A word that names a flag: not a negative number.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

fn is_expansion(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    value.starts_with('$') || word.contains("${") || word.contains("$(") || word.starts_with('`')
}

/// The name without dashes in front, dashes for underscores, short spellings in full; and the level
/// that is glued to `-O`.
fn full_name(written: &str) -> (String, Option<String>) {
    if let Some(long) = written.strip_prefix("--") {
        let (base, part) = long.split_once('.').unwrap_or((long, ""));
        let base = base.replace('_', "-");
        let name = if part.is_empty() { base } else { format!("{base}.{part}") };
        return (name, None);
    }
    let short = written.trim_start_matches('-');
    let (base, part) = short.split_once('.').unwrap_or((short, ""));
    if let Some((_, long)) = SHORT.iter().find(|(known, _)| *known == base) {
        let name = if part.is_empty() { (*long).to_owned() } else { format!("{long}.{part}") };
        return (name, None);
    }
    match short.strip_prefix('O') {
        Some(level) if level.chars().all(|c| c.is_ascii_digit()) => {
            ("optimization-level".to_owned(), Some(level.to_owned()))
        }
        _ => (short.to_owned(), None),
    }
}

/// The flag of this name, and whether `no-` switches it off.
fn find(name: &str, written: &str) -> Result<(Flag, bool)> {
    let negated = || {
        let flag = Flag::find(name.strip_prefix("no-")?)?;
        matches!(flag.takes(), Takes::Switch | Takes::Maybe).then_some((flag, true))
    };
    // With one dash only the short spellings exist.
    let is_spelled = written.starts_with("--") || SHORT.iter().any(|(_, long)| *long == name);
    let found = Flag::find(name).map(|flag| (flag, false)).or_else(negated);
    match found.filter(|_| is_spelled) {
        Some((Flag::Gone(Gone { note, .. }), _)) => {
            let text = format!("vLLM 0.29 has no `{written}`: {note}");
            Err(Error::new(text).help("leave the flag out"))
        }
        Some(found) => Ok(found),
        None => Err(unknown(name, written)),
    }
}

fn unknown(name: &str, written: &str) -> Error {
    let error = Error::new(format!("`{}` is no flag of vllm serve", shown(written.to_owned())));
    let bare = name.strip_prefix("no-").unwrap_or(name);
    // What a shortened name may stand for comes before what merely looks alike.
    let begun = Flag::names().find(|known| bare.len() >= 4 && known.starts_with(bare));
    let gone = GONE.iter().map(|flag| flag.name);
    match begun.or_else(|| nearest(bare, Flag::names().chain(gone))) {
        Some(near) => error.help(format!("did you mean `--{near}`?")),
        None => error.help("docs/vllm-serve.md lists every flag that is known"),
    }
}
