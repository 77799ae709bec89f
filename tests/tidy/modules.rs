//! Import cycles between the top-level modules of a crate: there are none. A folder counts as one
//! module; `use crate::…` and `super::…` across modules count, test code does not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::source::{code, rust_files, without_tests};

/// By module: the modules that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The names that begin the paths behind `prefix`: `crate::a::B` gives `a`, `crate::{a, b::C}`
/// gives `a` and `b`.
fn imported(code: &str, prefix: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        if before.is_alphanumeric() || before == '_' || before == ':' {
            continue;
        }
        let path = &code[at + prefix.len()..];
        let Some(group) = path.strip_prefix('{') else {
            names.push(word(path));
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in group.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => names.push(word(&std::mem::take(&mut item))),
                _ => {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    item.push(c);
                }
            }
        }
        names.push(word(&item));
    }
    names
}

/// Whether a file holds only tests.
fn is_test(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || name == "test_support.rs"
        || file.components().any(|part| part.as_os_str() == "tests")
}

fn graph(sources: &Path) -> Graph {
    let files: Vec<PathBuf> = rust_files(sources);
    let module = |file: &Path| -> String {
        let first = file.strip_prefix(sources).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> = files
        .iter()
        .map(|file| module(file))
        .filter(|name| !["lib", "main", "bin"].contains(&name.as_str()))
        .collect();
    let mut graph: Graph = modules.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for file in files {
        let relative = file.strip_prefix(sources).unwrap();
        let from = module(&file);
        if is_test(relative) || !modules.contains(&from) {
            continue;
        }
        let text = without_tests(&code(&std::fs::read_to_string(&file).unwrap()));
        // `super::` of a module that is this deep below the crate's root leads to the root.
        let is_root_of_folder = relative.file_name().is_some_and(|name| name == "mod.rs");
        let depth = relative.components().count() - usize::from(is_root_of_folder);
        let mut targets = imported(&text, "crate::");
        targets.extend(imported(&text, &"super::".repeat(depth)));
        let targets = targets.into_iter().filter(|to| *to != from && modules.contains(to));
        graph.entry(from.clone()).or_default().extend(targets);
    }
    graph
}

/// The shortest way from a module back to itself.
fn cycle(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in &graph[way.last()?] {
            let mut longer = way.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// The source folders of all crates.
fn crates(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in rust_files(folder) {
        let name = file.file_name().unwrap_or_default();
        let folder = file.parent().unwrap();
        let manifest = folder.parent().is_some_and(|parent| parent.join("Cargo.toml").exists());
        if (name == "lib.rs" || name == "main.rs") && folder.ends_with("src") && manifest {
            found.push(folder.to_owned());
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn no_module_of_a_crate_imports_itself_by_way_of_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = crates(root);
    assert!(crates.len() >= 10, "only {} crates found", crates.len());
    let mut cycles = Vec::new();
    for sources in crates {
        let graph = graph(&sources);
        let name = sources.strip_prefix(root).unwrap().display().to_string();
        cycles.extend(
            graph
                .keys()
                .filter_map(|module| cycle(&graph, module))
                .map(|way| format!("{name}: {}", way.join(" → "))),
        );
    }
    assert!(cycles.is_empty(), "import cycles: {cycles:#?}");
}

#[test]
fn imports_are_found_in_paths_and_groups() {
    let text = "use crate::a::B;\nuse crate::{c, d::{E, f}, g::H};\n\
                let x = crate::i::j(); // crate::k\n\
                \"crate::l\"; mycrate::m; use super::super::n;";
    assert_eq!(imported(&code(text), "crate::"), ["a", "c", "d", "g", "i"]);
    assert_eq!(imported(&code(text), "super::super::"), ["n"]);
    let tested = "use crate::a;\n#[cfg(test)]\nmod tests { use crate::b; }\nuse crate::c;";
    assert_eq!(imported(&without_tests(tested), "crate::"), ["a", "c"]);
}
