//! The prompt: a template with a version, and how a user's message is rendered into it.

use std::fs;
use std::io;
use std::path::Path;

use crate::config::Config;

const PLACEHOLDER: &str = "{{message}}";

/// A prompt template and its version, both fixed for the life of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The version, as the client sees it in each answer.
    pub version: String,
    template: String,
}

impl Prompt {
    /// Makes a prompt. The template marks the place of the user's message with `{{message}}`; a
    /// template without that mark gets the message as its last line.
    pub fn new(version: &str, template: &str) -> Self {
        let mut template = template.trim_end().replace("{{ message }}", PLACEHOLDER);
        if !template.contains(PLACEHOLDER) {
            template.push('\n');
            template.push_str(PLACEHOLDER);
        }
        Self { version: version.trim().to_owned(), template }
    }

    /// Reads template and version from where the configuration says.
    pub fn load(config: &Config) -> io::Result<Self> {
        let template = read(&config.prompt_file)?;
        let version = match config.prompt_version.as_deref().map(str::trim) {
            Some(version) if !version.is_empty() => version.to_owned(),
            _ => read(&config.prompt_version_file)?,
        };
        if version.trim().is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the version of the prompt is empty"));
        }
        Ok(Self::new(&version, &template))
    }

    /// The template with the message in its place. What the message contains is never expanded.
    pub fn render(&self, message: &str) -> String {
        self.template.replace(PLACEHOLDER, message)
    }
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_takes_the_place_of_the_mark() {
        let prompt = Prompt::new("v7\n", "Be kind.\nUser: {{ message }}\nYou:\n");
        assert_eq!(prompt.version, "v7");
        assert_eq!(prompt.render("hello"), "Be kind.\nUser: hello\nYou:");
    }

    #[test]
    fn a_template_without_a_mark_ends_with_the_message() {
        assert_eq!(Prompt::new("v1", "Be kind.\n").render("hello"), "Be kind.\nhello");
    }

    #[test]
    fn marks_inside_the_message_stay_as_they_are() {
        let prompt = Prompt::new("v1", "A {{message}} B");
        assert_eq!(prompt.render("{{message}} {{ message }}"), "A {{message}} {{ message }} B");
    }
}
