//! The rooms of ARCHITECTURE.md: each table lists the modules of a package from the top floor to
//! the bottom, and a module imports only from below.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::actors::programs::repository;

const MAP: &str = "ARCHITECTURE.md";
/// The modules that wire the rooms together, and tests of all of them.
const ROOTS: [&str; 3] = ["main", "lib", "tests"];

/// One table: its package's sources, and its rooms from the top floor to the bottom.
#[derive(Debug)]
struct Plan {
    sources: PathBuf,
    rooms: Vec<String>,
}

#[test]
fn the_map_has_every_room_and_no_other() {
    for plan in plans() {
        let mapped: BTreeSet<String> = plan.rooms.iter().cloned().collect();
        assert_eq!(mapped.len(), plan.rooms.len(), "a room stands there twice");
        let built: BTreeSet<String> = fs::read_dir(&plan.sources)
            .unwrap()
            .map(|entry| stem(&entry.unwrap().path()))
            .filter(|room| !ROOTS.contains(&room.as_str()))
            .collect();
        assert_eq!(mapped, built, "{MAP}: {}", plan.sources.display());
    }
}

#[test]
fn arrows_between_rooms_run_down() {
    for plan in plans() {
        let floor = |room: &str| plan.rooms.iter().position(|mapped| mapped == room);
        let climbs: BTreeSet<String> = sources_below(&plan.sources)
            .iter()
            .flat_map(|file| {
                let room = room_of(&plan.sources, file);
                let text = fs::read_to_string(file).unwrap();
                let imported = imported_rooms(&text).into_iter();
                imported
                    .filter(|other| *other != room && !ROOTS.contains(&room.as_str()))
                    .filter(|other| floor(other) < floor(&room))
                    .map(|other| format!("{} imports {other}", file.display()))
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(climbs, BTreeSet::new());
    }
}

/// Returns the tables: each stands below a heading that is the path of its sources.
fn plans() -> Vec<Plan> {
    let map = fs::read_to_string(repository().join(MAP)).unwrap();
    let plans: Vec<Plan> = map
        .split("\n### `")
        .skip(1)
        .filter_map(|section| section.split_once("`\n"))
        .map(|(sources, section)| Plan {
            sources: repository().join(sources),
            rooms: section
                .lines()
                .take_while(|line| !line.starts_with('#'))
                .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
                .collect(),
        })
        .collect();
    assert!(!plans.is_empty(), "{MAP} has lost its rooms");
    plans
}

/// Returns the rooms that product code names as `crate::ROOM`.
fn imported_rooms(text: &str) -> BTreeSet<String> {
    let tests = ["mod ", "pub(crate) mod ", "#[expect("];
    let tests = tests.map(|start| format!("\n#[cfg(test)]\n{start}"));
    let end = tests.iter().filter_map(|start| text.find(start)).min();
    let code: String = text[..end.unwrap_or(text.len())]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut rooms = BTreeSet::new();
    for (start, path) in code.match_indices("crate::") {
        if code[..start].ends_with(is_name) {
            continue;
        }
        let path = &code[start + path.len()..];
        let group = path.strip_prefix('{').map(items);
        for item in group.unwrap_or_else(|| vec![path]) {
            let name = item.trim().split(|letter| !is_name(letter)).next();
            rooms.extend(name.filter(|name| !name.is_empty()).map(ToOwned::to_owned));
        }
    }
    rooms
}

/// Returns the items of a group up to its closing brace.
fn items(group: &str) -> Vec<&str> {
    let mut depth = 0;
    let end = group.find(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth < 0
    });
    let mut depth = 0;
    group[..end.unwrap_or(group.len())]
        .split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0
        })
        .collect()
}

/// Returns the Rust files of product code.
fn sources_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if stem(&path) == "tests" {
            continue;
        }
        if path.is_dir() {
            files.extend(sources_below(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}

fn room_of(sources: &Path, file: &Path) -> String {
    let room = file.strip_prefix(sources).unwrap().components().next();
    stem(Path::new(room.unwrap().as_os_str()))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}
