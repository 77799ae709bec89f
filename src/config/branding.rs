//! `[branding]`.

use std::path::PathBuf;

use control_api::{BrandColor, Branding as Appearance, Logo};
use serde::Deserialize;

use super::InvalidValue;

/// `[branding]`
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(crate) struct Branding {
    pub(crate) name: Option<String>,
    pub(crate) logo: Option<PathBuf>,
    pub(crate) color: Option<String>,
    /// What the three say, with the content of the logo's file.
    #[serde(skip)]
    pub(crate) appearance: Appearance,
}

impl Branding {
    /// Reads the logo and checks all values.
    pub(super) fn read(&mut self) -> Result<(), InvalidValue> {
        if let Some(name) = &self.name {
            Appearance::check_name(name).map_err(|reason| ("branding.name", reason))?;
        }
        let read_logo = |path: &PathBuf| {
            let fault = |reason: String| {
                ("branding.logo", format!("the file \"{}\" {reason}", path.display()))
            };
            let content =
                std::fs::read(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
            Logo::parse(content).map_err(fault)
        };
        let read_color =
            |text: &String| BrandColor::parse(text).map_err(|reason| ("branding.color", reason));
        self.appearance = Appearance {
            name: self.name.as_deref().map(|name| name.trim().to_owned()),
            logo: self.logo.as_ref().map(read_logo).transpose()?,
            color: self.color.as_ref().map(read_color).transpose()?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::CONFIG_KEYS;
    use crate::config::tests::load_toml;

    /// A file with a picture of 8×8 pixels, of which only the header is there.
    fn logo_file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("visavis-{name}-{}", std::process::id()));
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\x02\0\0\0";
        std::fs::write(&path, png).unwrap();
        path
    }

    #[test]
    fn every_key_takes_its_value_from_the_environment() {
        let path = logo_file("logo");
        let logo = path.display().to_string();
        let variables = [
            ("VISAVIS_BRANDING_NAME", " 42 "),
            ("VISAVIS_BRANDING_LOGO", &logo),
            ("VISAVIS_BRANDING_COLOR", "#5b2a86"),
        ];
        let shown = load_toml("", &variables).unwrap().branding.appearance;
        std::fs::remove_file(path).unwrap();
        assert_eq!(shown.name.as_deref(), Some("42"));
        assert!(shown.logo.is_some());
        assert_eq!(shown.color.map(|color| color.to_string()).as_deref(), Some("#5b2a86"));
        let (_, keys) = CONFIG_KEYS.iter().find(|(name, _)| *name == "branding").unwrap();
        assert_eq!(keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["name", "logo", "color"]);
        assert_eq!(load_toml("", &[]).unwrap().branding.appearance, Appearance::default());
    }

    #[test]
    fn invalid_values_are_refused_with_their_place() {
        let fault = |text: &str| load_toml(&format!("[branding]\n{text}"), &[]).unwrap_err();
        assert_eq!(
            fault("color = \"#808080\""),
            "FILE:2: branding.color: text on \"#808080\" has a contrast of 4.05:1 at most, and \
             needs 4.5:1; choose a darker or a lighter color"
        );
        assert!(fault("color = \"red\"").ends_with("\"red\" is not a color such as \"#17695f\""));
        assert!(fault("name = \"\"").contains("branding.name: must have 1 to 60 characters"));
        let missing = fault("logo = \"/no/such/logo.png\"");
        assert!(
            missing.starts_with(
                "FILE:2: branding.logo: the file \"/no/such/logo.png\" cannot be read: "
            ),
            "{missing}"
        );
        let path = logo_file("text");
        std::fs::write(&path, "<svg/>").unwrap();
        let wrong = fault(&format!("logo = \"{}\"", path.display()));
        std::fs::remove_file(path).unwrap();
        assert!(wrong.ends_with("is neither a PNG nor a WebP file"), "{wrong}");
    }
}
