//! Manual pages, made from the command line's definition: one for informerd, and one for each command.

use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::CommandLine;

const NAME: &str = "informerd";

/// The exit codes, as docs/configuration.md has them.
const EXITS: [(&str, &str); 4] = [
    ("0", "Done."),
    ("1", "Failed while running."),
    ("64", "Wrong command line or configuration."),
    ("75", "informerd did not answer get or watch in time."),
];

// === impl CommandLine ===

impl CommandLine {
    /// Prints the page of a command, or of informerd itself. False if there is no such command.
    ///
    /// # Errors
    /// The output is closed.
    pub fn print_page(&self, command: Option<&str>, out: &mut dyn Write) -> io::Result<bool> {
        let wanted = command.map_or_else(|| NAME.to_owned(), |command| format!("{NAME}-{command}"));
        let Some((_, page)) = self.pages()?.into_iter().find(|(name, _)| *name == wanted) else { return Ok(false) };
        out.write_all(&page)?;
        Ok(true)
    }

    /// Writes all pages into a directory, which is created if it is missing.
    ///
    /// # Errors
    /// The directory or a page cannot be written.
    pub fn write_pages(&self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        for (name, page) in self.pages()? {
            std::fs::write(directory.join(format!("{name}.1")), page)?;
        }
        Ok(())
    }

    /// The names and the texts of all pages. The first is that of informerd itself.
    ///
    /// # Errors
    /// Never: the pages are made in memory.
    pub fn pages(&self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let whole = self.whole.clone().disable_help_subcommand(true);
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
        let commands: Vec<Command> = shown.cloned().map(|command| self.page_of(command)).collect();
        let mut made = Vec::with_capacity(commands.len() + 1);
        let main = whole.override_usage("informerd [OPTIONS] [COMMAND]");
        for command in std::iter::once(main).chain(commands) {
            let name = command.get_display_name().unwrap_or(NAME).to_owned();
            made.push((name.clone(), page(&name, command)?));
        }
        Ok(made)
    }

    /// A command with the flags of its own. Those of the settings are on the page of informerd.
    fn page_of(&self, command: Command) -> Command {
        let name = command.get_name().to_owned();
        let is_setting = |arg: &Arg| (self.form)(arg.get_id().as_str()).is_some();
        command
            .mut_args(|arg| if is_setting(&arg) { arg.hide(true) } else { arg })
            .display_name(format!("{NAME}-{name}"))
            .bin_name(format!("{NAME} {name}"))
            .disable_version_flag(true)
    }
}

fn page(name: &str, command: Command) -> io::Result<Vec<u8>> {
    let is_main = name == NAME;
    let has_settings = command.get_arguments().any(|arg| arg.get_id() == "config");
    let man = Man::new(command)
        .title(name)
        .source(concat!("informerd ", env!("CARGO_PKG_VERSION")))
        .manual("informerd manual");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut end = Roff::new();
    if is_main {
        man.render_subcommands_section(&mut out)?;
        end.control("SH", ["ENVIRONMENT AND FILES"]);
        end.text([roman(
            "Every option can also be set in the environment and in the YAML file that --config names. \
             notSynced.wait in the file is --not-synced-wait as an option and INFORMERD_NOT_SYNCED_WAIT in the \
             environment. Options win over the environment, and the environment over the file.",
        )]);
    } else if has_settings {
        end.control("SH", ["SETTINGS"]);
        end.text([roman("All options of "), bold(NAME), roman("(1) can be given, too.")]);
    }
    end.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXITS {
        end.control("TP", []);
        end.text([bold(code)]);
        end.text([roman(meaning)]);
    }
    if !is_main {
        end.control("SH", ["SEE ALSO"]);
        end.text([bold(NAME), roman("(1)")]);
    }
    end.to_writer(&mut out)?;
    Ok(out)
}
