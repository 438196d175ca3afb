//! Good files, bad files, and who overrides whom.

use super::*;

fn load(text: &str, environment: &[(&str, &str)], sets: &[&str]) -> Result<Config, String> {
    let mut layers = Layers::read(Some(("m.toml", text))).map_err(|e| e.0)?;
    let pairs = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    layers.apply_environment(pairs).map_err(|e| e.0)?;
    for set in sets {
        layers.apply_set(set).map_err(|e| e.0)?;
    }
    resolve::resolve(&layers, Path::new("/etc/millpond")).map_err(|e| e.0)
}

fn error(text: &str, sets: &[&str]) -> String {
    load(text, &[], sets).err().unwrap_or_else(|| panic!("accepted: {text} {sets:?}"))
}

/// The file of interface.md.
const FULL: &str = r#"
[server]
listen = "127.0.0.1:6380"
admin  = "127.0.0.1:9380"
password = "env:MILLPOND_PASSWORD"

[keys]
master = "file:master.key"

[[store]]
name = "sessions"
db = 3
scheme = "pancake"
capacity = 1_000_000
value_size = 0x400
backend = "redis://:hush@10.0.0.5:6379/0"
batch = 3
distribution = "file:weights.csv"
cover = "constant:250.5"
hold = 2
durability = "everysec"

[[store]]
name = "plain-text"
db = 0
scheme = "plain"
backend = "embedded:blocks"
cover = "off"
"#;

#[test]
fn without_a_file_there_is_one_pancake_store() {
    let config = Config::load_with(None, std::iter::empty(), &[]).unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:6380");
    assert_eq!(config.server.admin.as_deref(), Some("127.0.0.1:9380"));
    assert!(config.server.password.is_none());
    assert_eq!(config.server.max_clients, 10_000);
    assert_eq!(config.server.deadline, Duration::from_secs(5));
    assert!(config.master.create.as_ref().is_some_and(|path| path.ends_with("millpond-data/master.key")));
    assert_eq!(config.master.base, Path::new("."));
    let [store] = config.stores.as_slice() else { panic!("{} stores", config.stores.len()) };
    assert_eq!((store.name.as_str(), store.db, store.scheme), ("default", 0, SchemeName::Pancake));
    assert_eq!((store.capacity, store.value_size, store.batch, store.hold), (65_536, 1024, 3, 0));
    assert_eq!(store.backend.to_string(), "embedded:millpond-data/default.blocks");
    assert_eq!(store.state, Path::new("millpond-data/default"));
    assert_eq!((store.cover, store.durability), (Cover::Idle, Durability::Always));
    assert_eq!(store.distribution, Distribution::Uniform);
}

#[test]
fn a_full_file_is_resolved_against_its_directory() {
    let config = load(FULL, &[], &[]).unwrap();
    assert!(matches!(&config.server.password, Some(PasswordSource::Env(name)) if name == "MILLPOND_PASSWORD"));
    assert_eq!((config.master.source.as_str(), &config.master.create), ("file:master.key", &None));
    assert_eq!(config.master.base, Path::new("/etc/millpond"));
    assert_eq!(config.server.state, Path::new("/etc/millpond/millpond-data"));
    let [plain, sessions] = config.stores.as_slice() else { panic!("two stores") };
    assert_eq!((sessions.db, sessions.capacity, sessions.value_size, sessions.hold), (3, 1_000_000, 1024, 2));
    assert_eq!(sessions.distribution, Distribution::Weights("/etc/millpond/weights.csv".into()));
    assert_eq!((sessions.cover, sessions.durability), (Cover::Constant(250.5), Durability::EverySecond));
    assert_eq!(sessions.backend.to_string(), "redis://10.0.0.5:6379/0");
    assert!(matches!(&sessions.backend, Backend::Redis(url) if url.expose().contains("hush")));
    assert_eq!((plain.db, plain.scheme, plain.cover), (0, SchemeName::Plain, Cover::Off));
    assert_eq!(plain.backend.to_string(), "embedded:/etc/millpond/blocks");
}

#[test]
fn set_overrides_environment_overrides_file() {
    let environment = [
        ("MILLPOND_SERVER__LISTEN", "0.0.0.0:1"),
        ("MILLPOND_SERVER__MAX_CLIENTS", "7"),
        ("MILLPOND_STORE__PLAIN_TEXT__CAPACITY", "1_000"),
        ("MILLPOND_PASSWORD", "not an override"),
    ];
    let sets = ["server.listen=127.0.0.1:2", "store.sessions.hold=9", "store.0.db=5", "server.admin=off"];
    let config = load(FULL, &environment, &sets).unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:2");
    assert_eq!(config.server.admin, None);
    assert_eq!(config.server.max_clients, 7);
    assert_eq!(config.stores[0].capacity, 1000);
    assert_eq!((config.stores[1].hold, config.stores[1].db), (9, 5));
}

#[test]
fn unknown_keys_are_named_with_what_is_allowed() {
    let said = error("[server]\nlisten = \"a:1\"\nlisen = \"x\"\n", &[]);
    assert!(said.starts_with("m.toml line 3: unknown key \"lisen\"; [server] allows: listen, admin,"), "{said}");
    let said = error("[[store]]\nname = \"a\"\nblock_size = 4\n", &[]);
    assert!(said.contains("line 3") && said.contains("\"block_size\"; [[store]] allows: name, db"), "{said}");
    assert!(error("[sever]\n", &[]).contains("unknown section \"sever\"; allowed are: [server]"));
    assert!(error("", &["server.lisen=x"]).contains("--set server.lisen: unknown key"));
    assert!(error("", &["store.nope.db=1"]).contains("no store \"nope\"; there are: default"));
    assert!(error("", &["store.db=1"]).contains("store.NAME.key"));
    assert!(error("", &["listen"]).contains("section.key=value"));
    let said = load("", &[("MILLPOND_SERVER__NOPE", "1")], &[]).err().unwrap();
    assert!(said.starts_with("environment variable MILLPOND_SERVER__NOPE: unknown key"), "{said}");
}

#[test]
fn out_of_range_says_what_to_do() {
    let set = |set: &str| error("", &[set]);
    for (assignment, says) in [
        ("store.0.scheme=burst-oram", "isn't built yet; use pancake"),
        ("store.0.scheme=none", "use pancake"),
        ("store.0.hold=1001", "must be 0 to 1000"),
        ("store.0.cover=off", "off-i-accept-stalls"),
        ("store.0.cover=constant:0", "constant:RATE"),
        ("store.0.cover=constant:NaN", "constant:RATE"),
        ("store.0.batch=2", "at least 3"),
        ("store.0.batch=many", "takes a whole number"),
        ("store.0.capacity=1", "must be 2 to 2000000000"),
        ("store.0.value_size=0", "must be 1 to"),
        ("store.0.durability=never", "always, everysec or os"),
        ("store.0.distribution=zipf", "use uniform, file:"),
        ("store.0.backend=s3://x", "s3 isn't built yet"),
        ("store.0.backend=embedded:", "use embedded:PATH"),
        ("store.0.backend=redis:x", "use embedded:PATH"),
        ("store.0.name=0x", "must be a letter"),
        ("store.0.db=16", "0 to 15"),
        ("server.listen=6380", "HOST:PORT"),
        ("server.threads=0", "must be 1 to 1024"),
        ("server.password=", "is empty"),
        ("keys.master=deadbeef", "never the key itself"),
        ("keys.master=file:", "after the colon"),
    ] {
        let said = set(assignment);
        assert!(said.contains(says), "{assignment}: {said}");
        assert!(said.starts_with("--set "), "{said}");
    }
    assert!(load("", &[], &["store.0.cover=off-i-accept-stalls"]).is_ok());
}

#[test]
fn stores_do_not_share_names_numbers_or_directories() {
    let two = |a: &str, b: &str| error(&format!("[[store]]\n{a}\n[[store]]\n{b}"), &[]);
    assert!(two("name='a'", "db=3").contains("store.1.name: is missing"));
    assert!(two("name='a-b'", "name='A_b'").contains("too like \"a-b\""));
    assert!(two("name='a'\ndb=1", "name='b'").contains("choose another number"));
    assert!(two("name='a'\nbackend='embedded:x'", "name='b'\nbackend='embedded:x'").contains("belongs to \"a\""));
}

#[test]
fn errors_never_show_a_value() {
    for text in ["[server]\npassword = hush\n", "[server]\npassword = 5453\n", "[server]\npasword = \"hush\"\n"] {
        let said = error(text, &[]);
        assert!(!said.contains("hush") && !said.contains("5453") && said.contains("line 2"), "{said}");
    }
    assert!(!error("", &["keys.master=hush"]).contains("hush"));
    assert!(!error("[[store]]\nname='a'\nbackend='rdis://:hush@h'", &[]).contains("hush"));
}

#[test]
fn passwords_come_from_a_file_or_from_here() {
    let dir = std::env::temp_dir().join(format!("millpond-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("password");
    std::fs::write(&file, "from a file\nsecond line\n").unwrap();
    let read =
        |text: String| load("", &[], &[&format!("server.password={text}")]).unwrap().server.password.unwrap().read();
    assert_eq!(read(format!("file:{}", file.display())).unwrap().expose(), "from a file");
    assert_eq!(read("a:b".to_owned()).unwrap().expose(), "a:b");
    assert!(read(format!("file:{}/none", dir.display())).err().unwrap().0.contains("first line of"));
    assert!(read("env:MILLPOND_NO_SUCH".to_owned()).err().unwrap().0.contains("set the environment variable"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_reference_lists_every_key() {
    let page = reference_markdown();
    for key in schema::KEYS {
        assert!(page.contains(&format!("| `{}` |", key.name)));
    }
}
