//! Tests of what `make dist` packs: which libraries the program needs to start, and the configuration
//! of an installed system. `make test-install` installs the packages.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::path::Path;
use std::process::Command;

/// Shared libraries that every Debian and Ubuntu has. Others have another name in each release, or
/// are not installed.
const SYSTEM_LIBRARIES: [&str; 6] =
    ["linux-vdso.so", "ld-linux", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2"];

#[test]
fn the_program_starts_with_the_libraries_of_every_debian() {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_visavis")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| path.rsplit('/').next().unwrap_or(path))
        .collect();
    assert!(names.contains(&"libc.so.6"), "{text}");
    let others: Vec<&&str> = names
        .iter()
        .filter(|name| !SYSTEM_LIBRARIES.iter().any(|known| name.starts_with(known)))
        .collect();
    assert!(others.is_empty(), "{others:?} are needed, too:\n{text}");
}

#[test]
fn the_packaged_configuration_names_the_data_folder_of_the_service() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = checkout.join("config/example.toml");
    let output = Command::new(checkout.join("scripts/dist/configuration.py"))
        .arg(&example)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |text: &str| -> toml::Table { text.parse().unwrap() };
    let mut packaged = read(std::str::from_utf8(&output.stdout).unwrap());
    let data = packaged["server"].as_table_mut().unwrap().remove("data").unwrap();
    assert_eq!(data.as_str(), Some("/var/lib/visavis"));
    // Nothing else differs.
    let mut expected = read(&std::fs::read_to_string(example).unwrap());
    expected["server"].as_table_mut().unwrap().remove("data");
    assert_eq!(packaged, expected);
}

fn read_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn documents_name_the_files_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for path in ["README.md", "docs/deploy.md", "deploy/compose.yaml"] {
        let text = read_file(path);
        // visavis-0.1.0-…, visavis_0.1.0-…, visavis:0.1.0, ${VISAVIS_VERSION:-0.1.0}
        let named: Vec<&str> = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c)))
            .filter_map(|word| {
                let rest = word.strip_prefix("visavis").or(word.strip_prefix("VISAVIS_VERSION"))?;
                let rest = rest.trim_start_matches(['-', '_', ':']);
                // A number without a point is a port.
                (rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains('.'))
                    .then_some(rest)
            })
            .collect();
        assert!(!named.is_empty(), "{path} names no file of a release");
        for name in named {
            assert!(name.starts_with(version), "{path} names {name}, but this is {version}");
        }
    }
}

#[test]
fn both_ways_to_build_the_image_set_the_same_variables() {
    let settings = |path: &str, separator: &str| -> Vec<String> {
        let mut found: Vec<String> = read_file(path)
            .lines()
            .map(|line| line.trim().trim_start_matches("ENV ").trim_end_matches([' ', '\\', ',']))
            .filter(|line| line.trim_start_matches('"').starts_with("VISAVIS_"))
            .filter_map(|line| line.split_once(separator))
            .map(|(name, value)| format!("{}={}", name.trim_matches('"'), value.trim_matches('"')))
            .collect();
        found.sort();
        found
    };
    let (image, dockerfile) =
        (settings("scripts/dist/image.py", ": "), settings("deploy/image/Dockerfile", "="));
    assert!(!image.is_empty());
    assert_eq!(image, dockerfile);
}
