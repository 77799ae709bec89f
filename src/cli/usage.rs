//! What is wrong with a command line, in one sentence.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;

/// The command that describes commands.
const HELP: &str = "help";

/// What is wrong with a command line, in one sentence that names what is missing, or what is
/// similar to an unknown name.
pub(crate) fn usage_message(error: &clap::Error) -> String {
    let names = |kind| context(error, kind).join(", ");
    match error.kind() {
        ErrorKind::MissingRequiredArgument => format!("missing {}", names(ContextKind::InvalidArg)),
        ErrorKind::MissingSubcommand => {
            let mut commands = context(error, ContextKind::ValidSubcommand);
            commands.retain(|name| name != HELP);
            let program = names(ContextKind::InvalidSubcommand);
            format!("{program} needs a command: {}", commands.join(", "))
        }
        _ => {
            let text = error.to_string();
            let first =
                text.lines().find(|line| !line.trim().is_empty()).unwrap_or("invalid command line");
            first.trim_start_matches("error: ").to_owned() + &tip(error)
        }
    }
}

/// The names that the error has of one kind.
fn context(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        // Hidden commands are not named.
        Some(ContextValue::Strings(all)) => {
            all.iter().filter(|name| !is_hidden(name)).cloned().collect()
        }
        Some(ContextValue::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

fn is_hidden(command: &str) -> bool {
    Cli::command().find_subcommand(command).is_some_and(clap::Command::is_hide_set)
}

/// The most similar name, or the values that are possible, as the end of a sentence.
fn tip(error: &clap::Error) -> String {
    let similar =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            // The most similar one is the last.
            .find_map(|kind| context(error, kind).pop());
    if let Some(similar) = similar {
        return format!("; did you mean '{similar}'?");
    }
    let values = context(error, ContextKind::ValidValue);
    match error.kind() {
        ErrorKind::InvalidValue if !values.is_empty() => {
            format!("; possible values: {}", values.join(", "))
        }
        // An option of a command that stands before it.
        ErrorKind::UnknownArgument => match error.get(ContextKind::Suggested) {
            Some(ContextValue::StyledStrs(all)) => all
                .iter()
                .map(ToString::to_string)
                .find(|text| text.ends_with(" exists"))
                .map_or_else(String::new, |text| format!("; {text}")),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn an_invalid_command_line_is_reported_in_one_sentence() {
        for (line, expected) in [
            ("visavis keys", "visavis keys needs a command: create, list, revoke"),
            ("visavis keys create", "missing --workspace <NAME>"),
            (
                "visavis keys create --workspace a --scope root",
                "invalid value 'root' for '--scope <SCOPE>'",
            ),
            ("visavis keys revoke", "missing <ID>"),
            ("visavis simulate", "missing <FILE>"),
            ("visavis serve --listen here", "invalid value 'here' for '--listen <ADDR:PORT>'"),
        ] {
            let message = message(line);
            assert!(!message.contains("help"), "{message}");
            assert!(message.starts_with(expected) && !message.contains('\n'), "{line}: {message}");
        }
    }

    fn message(line: &str) -> String {
        usage_message(&Cli::try_parse_from(line.split(' ')).err().unwrap())
    }

    #[test]
    fn an_unknown_name_comes_with_a_similar_one() {
        for (line, expected) in [
            ("visavis serv", "unrecognized subcommand 'serv'; did you mean 'serve'?"),
            ("visavis keys craete", "unrecognized subcommand 'craete'; did you mean 'create'?"),
            (
                "visavis serve --lisen 1",
                "unexpected argument '--lisen' found; did you mean '--listen'?",
            ),
            (
                "visavis serve --log-format jsn",
                "invalid value 'jsn' for '--log-format <FORMAT>'; did you mean 'json'?",
            ),
            ("visavis completions tcsh", "invalid value 'tcsh' for '<SHELL>'; did you mean 'zsh'?"),
            (
                "visavis serve --log-format x",
                "invalid value 'x' for '--log-format <FORMAT>'; possible values: text, json",
            ),
            (
                "visavis --listen serve",
                "unexpected argument '--listen' found; 'serve --listen' exists",
            ),
            ("visavis hepl", "unrecognized subcommand 'hepl'; did you mean 'help'?"),
            ("visavis qqqq", "unrecognized subcommand 'qqqq'"),
        ] {
            assert_eq!(message(line), expected, "{line}");
        }
    }

    #[test]
    fn internal_commands_are_not_named() {
        for command in Cli::command().get_subcommands().filter(|command| command.is_hide_set()) {
            let name = command.get_name();
            let typo = &name[..name.len() - 1];
            let message = message(&format!("visavis {typo}"));
            assert!(!message.contains(name), "{message}");
            let help = Cli::command().render_long_help().to_string();
            assert!(!help.contains(&format!("\n  {name} ")), "{help}");
        }
    }
}
