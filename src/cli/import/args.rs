//! The arguments that all formats share, and those that only some of them heed.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::diag::Error;
use crate::trace::import::{Options, Outputs, Setting};
use crate::units::{Span, Tokens};

/// What was given on the command line.
#[derive(Clone, Debug)]
pub struct Args {
    /// The files to read.
    pub files: Vec<PathBuf>,
    /// The trace to write.
    pub output: PathBuf,
    /// How, with defaults where nothing was given.
    pub options: Options,
    /// What was given of that.
    pub given: Vec<Setting>,
}

/// The subcommand of a format that heeds these settings.
pub fn command(name: &'static str, about: &'static str, settings: &[Setting]) -> Command {
    Command::new(name)
        .about(about)
        .arg(
            Arg::new("files")
                .value_name("FILE")
                .help("Files of the trace: plain, gzip or zstd, whatever they are called")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("OUT")
                .help("Trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json goes beside it")
                .required(true)
                .value_parser(value_parser!(PathBuf)),
        )
        .args(settings.iter().map(|setting| argument(*setting)))
        .arg(
            Arg::new("skip-bad")
                .long("skip-bad")
                .help("Leave out rows that cannot be used, instead of refusing the import")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("licence")
                .long("licence")
                .value_name("TEXT")
                .help("Licence of the data, for the sidecar"),
        )
}

fn argument(setting: Setting) -> Arg {
    let arg = Arg::new(setting.name()).long(setting.name());
    match setting {
        Setting::Stagger => arg
            .value_name("SECONDS")
            .help("Seconds between the starts of two sessions, which the files do not tell")
            .default_value("30")
            .value_parser(seconds()),
        Setting::Outputs => arg
            .value_name("OUTPUTS")
            .help(
                "Whether a prompt repeats the answer to the prompt that it continues: where it \
                 has grown by as much, always as far as it has grown, or never",
            )
            .default_value(Outputs::Auto.name())
            .value_parser(Outputs::ALL.map(Outputs::name)),
        Setting::AssumeTps => arg
            .value_name("RATE")
            .help("Output tokens per second of calls whose duration was not recorded")
            .default_value("60")
            .value_parser(value_parser!(f64)),
        Setting::KeepIds => {
            arg.help("Keep the sessions' ids instead of numbering them").action(ArgAction::SetTrue)
        }
        Setting::Only => arg
            .value_name("ID")
            .help("Import only these sessions, by their ids in the file")
            .value_delimiter(',')
            .action(ArgAction::Append),
        Setting::MaxContext => arg
            .value_name("N")
            .help("Leave out sessions with a call of more than N tokens, prompt and output")
            .value_parser(value_parser!(u64)),
        Setting::MaxSpan => arg
            .value_name("SECONDS")
            .help("Leave out sessions that last longer, from start to the end of the last call")
            .value_parser(seconds()),
        Setting::BlockSize => arg
            .value_name("TOKENS")
            .help("Tokens in a block of the origin [default: 512 for mooncake, 16 for bailian]")
            .value_parser(value_parser!(u64).range(1..=1_000_000)),
        Setting::NoSharing => arg
            .help("Let prompts share nothing: the groups are not read")
            .action(ArgAction::SetTrue),
    }
}

/// Reads a number of seconds such as `60` or `1.5`.
fn seconds() -> impl TypedValueParser<Value = Span> {
    clap::builder::NonEmptyStringValueParser::new().try_map(|text| {
        Span::parse_secs(&text)
            .ok_or_else(|| Error::found(&text, "a number of seconds, 0 or more, such as `60`"))
    })
}

impl Args {
    /// Reads what [`command`] matched; what it does not offer has its default.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut options = Options {
            skip_bad: matches.get_flag("skip-bad"),
            licence: value(matches, "licence"),
            ..Options::default()
        };
        let mut given = Vec::new();
        for setting in Setting::ALL {
            let name = setting.name();
            if !matches!(matches.try_contains_id(name), Ok(true)) {
                continue;
            }
            if matches.value_source(name) == Some(ValueSource::CommandLine) {
                given.push(setting);
            }
            take(&mut options, setting, matches);
        }
        Self {
            files: matches.get_many("files").unwrap_or_default().cloned().collect(),
            output: value(matches, "output").unwrap_or_default(),
            options,
            given,
        }
    }
}

fn take(options: &mut Options, setting: Setting, matches: &ArgMatches) {
    let name = setting.name();
    match setting {
        Setting::Stagger => options.stagger = value(matches, name).unwrap_or(options.stagger),
        Setting::Outputs => {
            let word: Option<String> = value(matches, name);
            let known = |outputs: &Outputs| word.as_deref() == Some(outputs.name());
            options.outputs = Outputs::ALL.into_iter().find(known).unwrap_or_default();
        }
        Setting::AssumeTps => {
            options.assume_tps = value(matches, name).unwrap_or(options.assume_tps);
        }
        Setting::KeepIds => options.keep_ids = matches.get_flag(name),
        Setting::Only => {
            options.only = matches.get_many(name).unwrap_or_default().cloned().collect();
        }
        Setting::MaxContext => options.max_context = value(matches, name).map(Tokens),
        Setting::MaxSpan => options.max_span = value(matches, name),
        Setting::BlockSize => options.block_size = value(matches, name),
        Setting::NoSharing => options.no_sharing = matches.get_flag(name),
    }
}

fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
    matches.get_one(name).cloned()
}
