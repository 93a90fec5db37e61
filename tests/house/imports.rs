//! Which file of a crate uses which other file of the crate, and by which names.
//!
//! ```text
//! crate root --mod--> files --> words, `::`, signs --> items, imports and paths of each module
//!                                                                 |
//!                     names per pair of files <--- each name is followed to the file that defines it
//! ```
//!
//! A re-export is followed to the definition. A module is no use of a file; a name in it is. What the root file of a folder
//! takes from the files of its folder is no use either: it composes them. What they take from it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::{product_code, root};

/// The names that one file takes from another, per pair of files. Paths are relative to the workspace.
pub(crate) type Uses = BTreeMap<(String, String), BTreeSet<String>>;

/// Re-exports that are followed before a name counts as unknown.
const MOST_HOPS: usize = 12;

/// Words that begin the definition of an item; the next word is its name.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Separator,
    Sign(char),
}

/// One `use`, with nested braces taken apart.
#[derive(Debug, Clone)]
struct Import {
    path: Vec<String>,
    /// The name in this module; none for `*`.
    name: Option<String>,
    public: bool,
}

/// A module: a whole file, or an inline `mod name { .. }` of one.
#[derive(Debug, Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths with `::` in the code, outside of `use`.
    paths: BTreeSet<Vec<String>>,
    /// Single words of the code, outside of `use`.
    words: BTreeSet<String>,
}

/// The modules of a crate by their path from its root.
#[derive(Debug, Default)]
pub(crate) struct Modules(BTreeMap<Vec<String>, Module>);

/// Where a path leads.
enum Target {
    Module(Vec<String>),
    Item { file: String, name: String },
}

impl Modules {
    /// The product modules of the crate whose root file this is. Modules under `#[cfg(test)]` are left out.
    pub(crate) fn of_crate(root_file: &Path) -> Self {
        let mut modules = Self::default();
        modules.add_file(root_file, &[]);
        modules
    }

    fn add_file(&mut self, path: &Path, module: &[String]) {
        let shown = path.strip_prefix(root()).unwrap().display().to_string();
        for declared in self.add_text(&shown, &product_code(path), module) {
            let file = module_file(path, &declared[module.len()..], module.is_empty());
            if let Some(file) = file {
                self.add_file(&file, &declared);
            }
        }
    }

    /// Adds the modules of one file and returns those that it declares to be in other files.
    pub(crate) fn add_text(&mut self, file: &str, code: &str, module: &[String]) -> Vec<Vec<String>> {
        let mut reader = Reader { tokens: tokens(code), at: 0, modules: self, file, declared: Vec::new() };
        reader.module(module, 0);
        reader.declared
    }

    /// Follows a path that stands in a module. None: it leads out of the crate, or to an item of the module itself.
    fn target(&self, module: &[String], path: &[String], hops: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.inside(Vec::new(), rest, hops),
            "self" => self.inside(module.to_vec(), rest, hops),
            "super" => {
                let (mut parent, mut rest) = (module[..module.len().checked_sub(1)?].to_vec(), rest);
                while rest.first().is_some_and(|word| word == "super") {
                    parent.pop()?;
                    rest = &rest[1..];
                }
                self.inside(parent, rest, hops)
            }
            word => {
                let known = self.0.contains_key(&child(module, word))
                    || self.0[module].imports.iter().any(|import| import.name.as_deref() == Some(word));
                if known {
                    self.inside(module.to_vec(), path, hops)
                } else {
                    self.by_glob(module, path, hops)
                }
            }
        }
    }

    /// Follows a path from the module in which its first name is looked up.
    fn inside(&self, module: Vec<String>, path: &[String], hops: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        let found = self.0.get(&module)?;
        let next = child(&module, first);
        if self.0.contains_key(&next) {
            return self.inside(next, rest, hops);
        }
        let item = || Some(Target::Item { file: found.file.clone(), name: first.clone() });
        if found.items.contains(first) || hops == 0 {
            return item();
        }
        let mut named = found.imports.iter().filter(|import| import.name.as_ref() == Some(first));
        if let Some(import) = named.next() {
            let path: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            // A path to itself (`use name;`) leads to another crate.
            return if import.path.first() == Some(first) {
                None
            } else {
                self.target(&module, &path, hops - 1)
            };
        }
        // An unknown name is made by a macro of this file.
        self.by_glob(&module, path, hops).or_else(item)
    }

    /// Looks the first name of a path up in the modules that a module imports whole.
    fn by_glob(&self, module: &[String], path: &[String], hops: usize) -> Option<Target> {
        let globs = self.0[module].imports.iter().filter(|import| import.name.is_none());
        globs.filter_map(|import| self.target(module, &import.path, hops.checked_sub(1)?)).find_map(
            |target| {
                let Target::Module(whole) = target else { return None };
                let (found, first) = (self.0.get(&whole)?, path.first()?);
                let known = found.items.contains(first)
                    || self.0.contains_key(&child(&whole, first))
                    || found
                        .imports
                        .iter()
                        .any(|import| import.public && import.name.as_ref().is_none_or(|name| name == first));
                if known { self.inside(whole, path, hops - 1) } else { None }
            },
        )
    }

    /// Every use of a file by another file of the crate.
    pub(crate) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (path, module) in &self.0 {
            let mut taken: Vec<Vec<String>> = module.paths.iter().cloned().collect();
            for import in &module.imports {
                let Some(name) = &import.name else { continue };
                // What a module only passes on is a use by its users, not by the module.
                if !import.public || module.words.contains(name) {
                    taken.push(import.path.clone());
                }
            }
            if module.imports.iter().any(|import| import.name.is_none()) {
                let foreign = module.words.iter().filter(|word| !module.items.contains(*word));
                taken.extend(foreign.map(|word| vec![word.clone()]));
            }
            for used in taken {
                if let Some(Target::Item { file, name }) = self.target(path, &used, MOST_HOPS)
                    && file != module.file
                    && !is_below(&file, &module.file)
                {
                    uses.entry((module.file.clone(), file)).or_default().insert(name);
                }
            }
        }
        uses
    }
}

fn child(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Whether a file holds a module inside the module of another file.
fn is_below(file: &str, other: &str) -> bool {
    let folder = other.strip_suffix(".rs").unwrap_or(other);
    let parents = ["/mod", "/lib", "/main"];
    let folder = parents.iter().find_map(|parent| folder.strip_suffix(parent)).unwrap_or(folder);
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The file of a module that is declared in another file, if it is product code.
fn module_file(declaring: &Path, names: &[String], at_root: bool) -> Option<PathBuf> {
    let stem = declaring.file_stem().unwrap();
    let folder = declaring.parent().unwrap();
    let folder = if at_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
    let base = names.iter().fold(folder, |folder, name| folder.join(name));
    [base.with_extension("rs"), base.join("mod.rs")].into_iter().find(|file| file.exists())
}

/// Reads the modules of one file.
struct Reader<'a> {
    tokens: Vec<Token>,
    at: usize,
    modules: &'a mut Modules,
    file: &'a str,
    declared: Vec<Vec<String>>,
}

impl Reader<'_> {
    fn word(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at) == Some(&Token::Sign(sign))
    }

    /// Reads a module up to the brace that closes it, or to the end of the file.
    fn module(&mut self, path: &[String], inline: usize) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            let at = self.at;
            self.at += 1;
            if self.is(at, '{') {
                depth += 1;
            }
            if self.is(at, '}') {
                if depth == 0 && inline > 0 {
                    break;
                }
                depth = depth.saturating_sub(1);
            }
            let Some(word) = self.word(at).map(str::to_owned) else { continue };
            let next = self.word(at + 1).map(str::to_owned);
            match (word.as_str(), next) {
                ("mod", Some(name)) if self.is(at + 2, ';') => self.declared.push(child(path, &name)),
                ("mod", Some(name)) if self.is(at + 2, '{') => {
                    self.at = at + 3;
                    self.module(&child(path, &name), inline + 1);
                }
                ("use", _) if !self.is(at + 1, '<') => {
                    let public = self.is_public(at);
                    self.import(Vec::new(), public, &mut module.imports);
                }
                ("macro_rules", _) if self.is(at + 1, '!') => {
                    module.items.extend(self.word(at + 2).map(str::to_owned));
                }
                (keyword, Some(name)) if depth == 0 && ITEMS.contains(&keyword) => {
                    module.items.insert(name);
                }
                _ => self.path(at, word, &mut module),
            }
        }
        self.modules.0.insert(path.to_vec(), module);
    }

    /// Whether `pub` or `pub(..)` stands before a `use`.
    fn is_public(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return false };
        let open = (0..before).rev().take(6).find(|place| self.is(*place, '('));
        let closed = self.is(before, ')').then_some(open).flatten();
        self.word(before) == Some("pub")
            || closed.and_then(|open| open.checked_sub(1)).is_some_and(|at| self.word(at) == Some("pub"))
    }

    /// Reads one tree of a `use`: a path that ends in a name, `*`, or braces with more trees.
    fn import(&mut self, mut path: Vec<String>, public: bool, imports: &mut Vec<Import>) {
        loop {
            let token = self.tokens.get(self.at).cloned();
            self.at += 1;
            match token {
                Some(Token::Word(word)) if word == "as" => {
                    let name = self.word(self.at).map(str::to_owned);
                    self.at += 1;
                    imports.push(Import { path, name, public });
                    return;
                }
                Some(Token::Word(word)) if word == "self" && !path.is_empty() => {}
                Some(Token::Word(word)) => path.push(word),
                Some(Token::Separator) => {}
                Some(Token::Sign('*')) => {
                    imports.push(Import { path, name: None, public });
                    return;
                }
                Some(Token::Sign('{')) => {
                    while !self.is(self.at, '}') && self.at < self.tokens.len() {
                        self.import(path.clone(), public, imports);
                        if self.is(self.at, ',') {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                _ => {
                    // The sign that ends the tree belongs to the caller.
                    self.at -= 1;
                    let name = path.last().cloned();
                    if name.is_some() {
                        imports.push(Import { path, name, public });
                    }
                    return;
                }
            }
        }
    }

    /// Reads a word, or a path that starts with it.
    fn path(&mut self, at: usize, word: String, module: &mut Module) {
        if at > 0 && (self.is(at - 1, '.') || self.tokens.get(at - 1) == Some(&Token::Separator)) {
            return;
        }
        let mut path = vec![word];
        while self.tokens.get(self.at) == Some(&Token::Separator)
            && let Some(next) = self.word(self.at + 1)
        {
            path.push(next.to_owned());
            self.at += 2;
        }
        module.words.insert(path[0].clone());
        if path.len() > 1 {
            module.paths.insert(path);
        }
    }
}

/// Code as words, `::` and signs. Strings, characters, lifetimes, numbers and comments are dropped.
fn tokens(code: &str) -> Vec<Token> {
    let letters: Vec<char> = code.chars().collect();
    let is = |at: usize, letter: char| letters.get(at) == Some(&letter);
    let end_of = |from: usize, end: &[char]| {
        (from..letters.len())
            .find(|at| letters[*at..].starts_with(end))
            .map_or(letters.len(), |at| at + end.len())
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        if letter.is_alphabetic() || letter == '_' {
            let end = (at..letters.len()).find(|at| !is_word(letters[*at])).unwrap_or(letters.len());
            let word: String = letters[at..end].iter().collect();
            let marks = letters[end..].iter().take_while(|mark| **mark == '#').count();
            let raw = ["r", "br", "cr"].contains(&&*word) && is(end + marks, '"');
            at = end;
            if raw {
                let closing: Vec<char> = ['"'].into_iter().chain(std::iter::repeat_n('#', marks)).collect();
                at = end_of(end + marks + 1, &closing);
            } else {
                found.push(Token::Word(word));
            }
        } else if letter.is_ascii_digit() {
            at = (at..letters.len()).find(|at| !is_word(letters[*at])).unwrap_or(letters.len());
        } else if letter == '/' && is(at + 1, '/') {
            at = end_of(at, &['\n']);
        } else if letter == '/' && is(at + 1, '*') {
            at = end_of(at, &['*', '/']);
        } else if letter == '"' {
            at += 1;
            while at < letters.len() && letters[at] != '"' {
                at += if letters[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if letter == '\'' && is(at + 1, '\\') {
            at = end_of(at + 3, &['\'']);
        } else if letter == '\'' && is(at + 2, '\'') {
            at += 3;
        } else if letter == '\'' {
            at = (at + 1..letters.len()).find(|at| !is_word(letters[*at])).unwrap_or(letters.len());
        } else if letter == ':' && is(at + 1, ':') {
            found.push(Token::Separator);
            at += 2;
        } else {
            if !letter.is_whitespace() {
                found.push(Token::Sign(letter));
            }
            at += 1;
        }
    }
    found
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[test]
fn strings_comments_characters_and_lifetimes_are_no_code() {
    let code = "a::b(\"c::d\\\"\", r#\"e\"f\"#, 'g', '\\'', '\\u{41}', 1_000u64) // h\n<'i> /* j */ k";
    let words: Vec<String> = tokens(code)
        .into_iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        })
        .collect();
    assert_eq!(words, ["a", "b", "k"]);
}
