//! The one table of configuration keys. Checking, defaults, the "allowed here" lists in errors and the reference page
//! all come from it.

use std::fmt::Write;

/// A part of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// `[server]`
    Server,
    /// `[keys]`
    Keys,
    /// `[[store]]`, any number of times
    Store,
}

impl Section {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Server, Self::Keys, Self::Store];

    /// As it stands in the file, without brackets, and at the start of an override.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Keys => "keys",
            Self::Store => "store",
        }
    }

    /// With its brackets.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Server => "[server]",
            Self::Keys => "[keys]",
            Self::Store => "[[store]]",
        }
    }

    /// Finds a key, or lists what there is.
    pub fn key(self, name: &str) -> Result<&'static Key, String> {
        KEYS.iter().find(|key| key.section == self && key.name == name).ok_or_else(|| {
            let allowed: Vec<_> = KEYS.iter().filter(|key| key.section == self).map(|key| key.name).collect();
            format!("unknown key \"{name}\"; {} allows: {}", self.heading(), allowed.join(", "))
        })
    }
}

/// What a key has where nothing sets it; its variant is also the key's type.
#[derive(Debug, Clone, Copy)]
pub enum Fallback {
    /// Text.
    Text(&'static str),
    /// A whole number.
    Integer(u64),
    /// Text that depends on something else; here in words, for the reference.
    TextOf(&'static str),
    /// A whole number that depends on something else.
    IntegerOf(&'static str),
}

/// A configuration key.
#[derive(Debug)]
pub struct Key {
    /// Where it stands.
    pub section: Section,
    /// Its name.
    pub name: &'static str,
    /// Its default.
    pub fallback: Fallback,
    /// What it does.
    pub doc: &'static str,
}

impl Key {
    /// Whether its value is a whole number rather than text.
    pub fn is_integer(&self) -> bool {
        matches!(self.fallback, Fallback::Integer(_) | Fallback::IntegerOf(_))
    }
}

const fn key(section: Section, name: &'static str, fallback: Fallback, doc: &'static str) -> Key {
    Key { section, name, fallback, doc }
}

use Fallback::{Integer, IntegerOf, Text, TextOf};
use Section::{Keys, Server, Store};

/// Every key there is.
pub static KEYS: &[Key] = &[
    key(Server, "listen", Text("127.0.0.1:6380"), "Address for clients."),
    key(
        Server,
        "admin",
        Text("127.0.0.1:9380"),
        "Address for metrics, health and status, or `off`. It tells much about the traffic: trusted side only.",
    ),
    key(
        Server,
        "password",
        TextOf("none"),
        "What AUTH must give: `env:NAME`, `file:PATH` (its first line), or the password itself.",
    ),
    key(
        Server,
        "state",
        Text("millpond-data"),
        "The trusted state directory: journals, checkpoints, the lock. Never on the untrusted store.",
    ),
    key(Server, "threads", IntegerOf("one per core"), "Worker threads, 1 to 1024."),
    key(Server, "max_clients", Integer(10_000), "Connections at a time; more are refused."),
    key(
        Server,
        "deadline_ms",
        Integer(5_000),
        "After this long a request that the store has not let finish is answered with an error; also how long a stop waits.",
    ),
    key(
        Keys,
        "master",
        TextOf("`file:master.key` in the state directory, made at the first start"),
        "The master key: `file:PATH` (make it with `millpond keygen`), `env:NAME`, or `exec:COMMAND`, which prints it.",
    ),
    key(
        Store,
        "name",
        TextOf("required"),
        "A letter, then letters, digits, `-` and `_`; at most 64. Labels metrics and names the state.",
    ),
    key(
        Store,
        "db",
        IntegerOf("the store's position, from 0"),
        "The number clients SELECT, 0 to 15. Connections start with the lowest there is.",
    ),
    key(
        Store,
        "scheme",
        Text("pancake"),
        "`pancake` hides which keys are popular. `sealed` hides contents only and `plain` nothing: yardsticks.",
    ),
    key(
        Store,
        "capacity",
        Integer(65_536),
        "The most keys it will ever hold, 2 to 2,000,000,000. Pancake keeps twice as many blocks.",
    ),
    key(Store, "value_size", Integer(1_024), "The largest value in bytes, 1 to 16,777,216. Every block is this large."),
    key(
        Store,
        "backend",
        TextOf("`embedded:` in the state directory"),
        "The untrusted store: `embedded:PATH`, `memory:`, `redis://HOST:PORT/DB` or `rediss://…`.",
    ),
    key(
        Store,
        "batch",
        Integer(3),
        "Accesses for each request, 3 to 64; with fewer than 3 the queue does not converge.",
    ),
    key(
        Store,
        "distribution",
        Text("uniform"),
        "How popular the keys are: `uniform`, `file:WEIGHTS.csv` (key,weight) or `trace:FILE` (one key a line, counted).",
    ),
    key(
        Store,
        "cover",
        Text("idle"),
        "Batches without a request: `idle` (a burst after traffic, then a floor), `constant:RATE` (batches a second, \
         which hides load too), or `off`, which `pancake` takes only as `off-i-accept-stalls`: requests may then wait \
         for the next one.",
    ),
    key(
        Store,
        "hold",
        Integer(0),
        "Batches a reply is held after its request arrived, 0 to 1000; against closed loops.",
    ),
    key(
        Store,
        "durability",
        Text("always"),
        "When a write is on disk in the journal: `always` (fsync before the reply), `everysec`, or `os`.",
    ),
];

/// The reference page's tables, as Markdown.
pub fn reference_markdown() -> String {
    let mut page = String::new();
    for section in Section::ALL {
        // Writing to a String can't fail.
        let _ = writeln!(page, "## `{}`\n\n| key | default | what it does |\n|---|---|---|", section.heading());
        for key in KEYS.iter().filter(|key| key.section == section) {
            let fallback = match key.fallback {
                Text(text) => format!("`\"{text}\"`"),
                Integer(number) => format!("`{number}`"),
                TextOf(words) | IntegerOf(words) => words.to_owned(),
            };
            let _ = writeln!(page, "| `{}` | {fallback} | {} |", key.name, key.doc);
        }
        page.push('\n');
    }
    page
}
