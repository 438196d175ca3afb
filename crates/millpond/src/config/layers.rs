//! Brings the file, the environment and the command line together: later layers replace single keys of earlier ones.
//!
//! Errors name the place and the key, never the value: it may be a password.

use super::ConfigError;
use super::schema::{Fallback, Section};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key's value.
#[derive(Clone)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(u64),
}

/// A value and where it comes from.
#[derive(Clone)]
struct Setting {
    value: Value,
    origin: String,
}

/// One section with its keys' values.
pub struct Fields {
    section: Section,
    /// What errors call it.
    label: String,
    /// By the key's name in the schema.
    settings: BTreeMap<&'static str, Setting>,
}

impl Fields {
    fn new(section: Section, label: impl Into<String>) -> Self {
        Self { section, label: label.into(), settings: BTreeMap::new() }
    }

    /// Sets a key whose text came from outside the file.
    fn override_with(&mut self, name: &str, text: &str, origin: &str) -> Result<(), ConfigError> {
        let key = self.section.key(name).map_err(|what| ConfigError(format!("{origin}: {what}")))?;
        let value = if key.is_integer() {
            let digits = text.trim().replace('_', "");
            let number = digits.parse().map_err(|_| ConfigError(format!("{origin}: {name} takes a whole number")))?;
            Value::Integer(number)
        } else {
            Value::Text(text.to_owned())
        };
        self.settings.insert(key.name, Setting { value, origin: origin.to_owned() });
        Ok(())
    }

    /// Sets a key from the file.
    fn set(&mut self, name: &str, value: &DeValue<'_>, origin: &str) -> Result<(), ConfigError> {
        let fail = |what: String| Err(ConfigError(format!("{origin}: {what}")));
        let key = match self.section.key(name) {
            Ok(key) => key,
            Err(what) => return fail(what),
        };
        let value = match value {
            DeValue::Integer(number) if key.is_integer() => {
                match u64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::Integer(number),
                    Err(_) => return fail(format!("{name} must not be negative or above 2^64")),
                }
            }
            DeValue::String(text) if !key.is_integer() => Value::Text(text.to_string()),
            _ if key.is_integer() => return fail(format!("{name} takes a whole number, without quotes")),
            _ => return fail(format!("{name} takes text, in quotes")),
        };
        self.settings.insert(key.name, Setting { value, origin: origin.to_owned() });
        Ok(())
    }

    /// The text of a key; its default where nothing sets it; `None` where that depends on something else.
    pub fn text(&self, name: &str) -> Option<String> {
        match (self.settings.get(name).map(|setting| &setting.value), self.fallback(name)) {
            (Some(Value::Text(text)), _) => Some(text.clone()),
            (None, Some(Fallback::Text(text))) => Some(text.to_owned()),
            _ => None,
        }
    }

    /// The number of a key, likewise.
    pub fn integer(&self, name: &str) -> Option<u64> {
        match (self.settings.get(name).map(|setting| &setting.value), self.fallback(name)) {
            (Some(Value::Integer(number)), _) => Some(*number),
            (None, Some(Fallback::Integer(number))) => Some(number),
            _ => None,
        }
    }

    fn fallback(&self, name: &str) -> Option<Fallback> {
        self.section.key(name).ok().map(|key| key.fallback)
    }

    /// An error about a key: where it was set, its name, what is wrong and what to do.
    pub fn error(&self, name: &str, what: impl std::fmt::Display) -> ConfigError {
        let origin = self.settings.get(name).map_or_else(String::new, |setting| format!("{}: ", setting.origin));
        ConfigError(format!("{origin}{}.{name}: {what}", self.label))
    }
}

/// All layers together, not yet resolved.
pub struct Layers {
    /// `[server]`
    pub server: Fields,
    /// `[keys]`
    pub keys: Fields,
    /// Every `[[store]]`, in order. Never empty.
    pub stores: Vec<Fields>,
}

impl Layers {
    /// Reads a configuration file's text; `None`: there is no file. Without a store there is one named `default`.
    pub fn read(file: Option<(&str, &str)>) -> Result<Self, ConfigError> {
        let mut layers = Self {
            server: Fields::new(Section::Server, "server"),
            keys: Fields::new(Section::Keys, "keys"),
            stores: vec![],
        };
        if let Some((name, text)) = file {
            layers.read_file(name, text)?;
        }
        if layers.stores.is_empty() {
            let mut store = Fields::new(Section::Store, "store.default");
            store.override_with("name", "default", "built in")?;
            layers.stores.push(store);
        }
        Ok(layers)
    }

    fn read_file(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let place = |start: usize| {
            let before = text.as_bytes().iter().take(start);
            format!("{name} line {}", 1 + before.filter(|byte| **byte == b'\n').count())
        };
        let table = DeTable::parse(text).map_err(|error| {
            // Its Display would quote the line, with whatever secret is in it.
            ConfigError(format!("{}: {}", place(error.span().map_or(0, |span| span.start)), error.message()))
        })?;
        for (key, value) in in_order(table.get_ref()) {
            let origin = place(key.span().start);
            let section = Section::ALL.into_iter().find(|section| section.name() == key.get_ref().as_ref());
            match (section, value.get_ref()) {
                (Some(Section::Server), DeValue::Table(table)) => fill(&mut self.server, table, &place)?,
                (Some(Section::Keys), DeValue::Table(table)) => fill(&mut self.keys, table, &place)?,
                (Some(Section::Store), DeValue::Array(stores)) => {
                    for store in stores {
                        let DeValue::Table(table) = store.get_ref() else {
                            return Err(ConfigError(format!("{origin}: write stores as [[store]] sections")));
                        };
                        let mut fields = Fields::new(Section::Store, format!("store.{}", self.stores.len()));
                        fill(&mut fields, table, &place)?;
                        self.stores.push(fields);
                    }
                }
                (Some(section), _) => {
                    return Err(ConfigError(format!("{origin}: write this as a {} section", section.heading())));
                }
                (None, _) => return Err(ConfigError(format!("{origin}: {}", unknown_section(key.get_ref())))),
            }
        }
        for store in &mut self.stores {
            if let Some(name) = store.text("name") {
                store.label = format!("store.{name}");
            }
        }
        Ok(())
    }

    /// Applies `MILLPOND_A__B=value` for every such variable. Names without `__` are left alone.
    pub fn apply_environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result<(), ConfigError> {
        let mut overrides: Vec<_> =
            variables.filter(|(name, _)| name.starts_with("MILLPOND_") && name.contains("__")).collect();
        overrides.sort();
        for (name, value) in overrides {
            let path = name.trim_start_matches("MILLPOND_").to_ascii_lowercase();
            let parts: Vec<&str> = path.split("__").collect();
            self.apply(&parts, &value, &format!("environment variable {name}"))?;
        }
        Ok(())
    }

    /// Applies `--set a.b=value`.
    pub fn apply_set(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let Some((path, value)) = assignment.split_once('=') else {
            return Err(ConfigError(
                "--set: write it as section.key=value, as in --set server.listen=127.0.0.1:6380".into(),
            ));
        };
        let parts: Vec<&str> = path.trim().split('.').collect();
        self.apply(&parts, value, &format!("--set {}", path.trim()))
    }

    fn apply(&mut self, path: &[&str], value: &str, origin: &str) -> Result<(), ConfigError> {
        let fail = |what: String| Err(ConfigError(format!("{origin}: {what}")));
        match path {
            ["server", key] => self.server.override_with(key, value, origin),
            ["keys", key] => self.keys.override_with(key, value, origin),
            ["store", store, key] => {
                let names: Vec<String> = self.stores.iter().filter_map(|fields| fields.text("name")).collect();
                let found = match store.parse::<usize>() {
                    Ok(index) => self.stores.get_mut(index),
                    Err(_) => self
                        .stores
                        .iter_mut()
                        .find(|fields| fields.text("name").is_some_and(|name| comparable(&name) == comparable(store))),
                };
                match found {
                    Some(fields) => fields.override_with(key, value, origin),
                    None => fail(format!("there is no store \"{store}\"; there are: {}", names.join(", "))),
                }
            }
            ["store", _] => fail("say which store: store.NAME.key or store.0.key".to_owned()),
            [section, ..] if Section::ALL.iter().any(|s| s.name() == *section) => {
                fail(format!("too many parts; write {section}.key"))
            }
            _ => fail(unknown_section(path.first().unwrap_or(&""))),
        }
    }
}

/// A store's name as overrides and duplicates are compared: an environment variable has no case and no `-`.
pub fn comparable(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

fn unknown_section(name: &str) -> String {
    format!("unknown section \"{name}\"; allowed are: [server], [keys], [[store]]")
}

fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn fill(fields: &mut Fields, table: &DeTable<'_>, place: &impl Fn(usize) -> String) -> Result<(), ConfigError> {
    for (key, value) in in_order(table) {
        fields.set(key.get_ref(), value.get_ref(), &place(key.span().start))?;
    }
    Ok(())
}
