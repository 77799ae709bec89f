//! Texts with placeholders.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// A placeholder of a template, without its braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placeholder {
    /// The agent's name.
    Agent,
    /// The prompt's statement about the agent, in the first person.
    Identity,
    /// The same, if it contains the agent's name.
    NamedIdentity,
    /// The agent's last text.
    LastReply,
    /// The name that the user states in this text.
    StatedName,
    /// The name that the user stated before.
    UserName,
    /// The sentence that answers.
    Answer,
    /// Some subjects of the agent's knowledge.
    Subjects,
    /// Name of a field of a tool's result, label of a list item, or first cell of a table's row.
    Field,
    /// Heading of a table's column.
    Column,
    /// Value of this field, label or cell.
    Value,
}

/// A text with placeholders in braces, such as `I'm {agent}.`
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

impl Template {
    /// The text with all values; `None` if a placeholder has no value.
    pub(super) fn fill<'a>(
        &self,
        mut value: impl FnMut(Placeholder) -> Option<Cow<'a, str>>,
    ) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Placeholder(placeholder) => text.push_str(&value(*placeholder)?),
            }
        }
        Some(text)
    }

    /// The placeholders in order.
    #[cfg(test)]
    pub(super) fn placeholders(&self) -> impl Iterator<Item = Placeholder> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(placeholder) => Some(*placeholder),
        })
    }
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("a template is empty".into());
        }
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("no }} in {text:?}"))?;
            let placeholder = Placeholder::deserialize(name.into_deserializer())
                .map_err(|error: Error| format!("{text:?}: {error}"))?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Placeholder(placeholder));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }
}

/// The texts of all templates whose placeholders all have a value.
pub(super) fn usable<'a>(
    templates: &[Template],
    mut value: impl FnMut(Placeholder) -> Option<Cow<'a, str>>,
) -> Vec<String> {
    templates.iter().filter_map(|template| template.fill(&mut value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str, agent: Option<&'static str>) -> Option<String> {
        let value = |placeholder| match placeholder {
            Placeholder::Agent => agent.map(Cow::from),
            _ => None,
        };
        Template::try_from(text.to_owned()).unwrap().fill(value)
    }

    #[test]
    fn placeholders_are_replaced_or_make_the_template_unusable() {
        assert_eq!(fill("I'm {agent}, {agent}!", Some("Ada")).as_deref(), Some("I'm Ada, Ada!"));
        assert_eq!(fill("I'm {agent}.", None), None);
        assert_eq!(fill("{agent}{last_reply}", Some("Ada")), None);
        assert_eq!(fill("Yes?", None).as_deref(), Some("Yes?"));
    }

    #[test]
    fn unknown_placeholders_are_errors() {
        let error = |text: &str| Template::try_from(text.to_owned()).unwrap_err();
        let unknown = error("I'm {agnet}.");
        assert!(unknown.contains("unknown variant `agnet`"), "{unknown}");
        assert_eq!(error("I'm {agent."), "no } in \"I'm {agent.\"");
        assert_eq!(error(" "), "a template is empty");
    }
}
