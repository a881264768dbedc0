//! Overrides, placeholders and password files.

use super::*;

fn database_url(config: &Config) -> String {
    match &config.store.database {
        Database::MySql { url, .. } => url.expose(),
        Database::Sqlite { path } => path.display().to_string(),
    }
}

#[test]
fn every_kind_of_value_can_be_overridden() {
    let config = read_with(
        &changed("time_zone = \"+09:00\"\n", ""),
        &[
            ("CONSIGN__STORE__URL", "sqlite:other.db"),
            ("CONSIGN__STORE__CONNECTIONS", "3"),
            ("CONSIGN__RELAY__NAME", "7"),
            ("CONSIGN__RELAY__BATCH_ROWS", "20"),
            ("CONSIGN__OUTBOX__0__TABLE", "events"),
            ("CONSIGN__OUTBOX__0__COLUMNS", "{ event_id = \"id\" }"),
            ("CONSIGN__DESTINATION__POINTS__URL", "amqp://other"),
            ("CONSIGN__DESTINATION__POINTS__QUEUE__0__BINDINGS", "[\"A\", \"B\"]"),
            ("CONSIGN__ROUTE__0__KEY", "{aggregate_id}"),
            ("CONSIGN__CONSUMER__POINTS_AWARD__WORKERS", "2"),
            ("CONSIGN_CONFIG", "consign.toml"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();

    assert_eq!(database_url(&config), "/etc/consign/other.db");
    assert_eq!(config.store.connections, 3);
    assert_eq!(config.relay.name, "7");
    assert_eq!(config.relay.settings.batch_rows, 20);
    assert_eq!(config.outboxes[0].table, "events");
    assert_eq!(config.outboxes[0].columns["event_id"], "id");
    let DestinationConfig::RabbitMq(broker) = &config.destinations[&DestinationName::new("points")] else {
        panic!("not RabbitMQ")
    };
    assert_eq!(broker.url.expose(), "amqp://other");
    assert_eq!(broker.queues[0].bindings, ["A", "B"]);
    assert_eq!(config.consumers[0].workers, 2);
}

#[test]
fn mistakes_in_variables_name_the_variable() {
    for (variable, value, mistake) in [
        (
            "CONSIGN__RELAY__BATCH_ROW",
            "5",
            "variable CONSIGN__RELAY__BATCH_ROW: relay.batch_row: unknown key, did you mean \"batch_rows\"?",
        ),
        (
            "CONSIGN__RELAY__BATCH_ROWS",
            "many",
            "variable CONSIGN__RELAY__BATCH_ROWS: relay.batch_rows: wrong type: string \"many\", expected a whole \
             number from 0 up",
        ),
        (
            "CONSIGN__STORE",
            "mysql://app:s3cr3t@db/points",
            "variable CONSIGN__STORE: store: wrong type: a text, expected the table RawStore",
        ),
        (
            "CONSIGN__RELAY__BATCH_ROWS",
            "0",
            "variable CONSIGN__RELAY__BATCH_ROWS: relay.batch_rows: 0 is out of range: use 1 to 10000",
        ),
        (
            "CONSIGN__CONSUMER__POINTS__WORKERS",
            "1",
            "variable CONSIGN__CONSUMER__POINTS__WORKERS: no entry of the list is called POINTS: use its index from \
             0, or its name",
        ),
        (
            "CONSIGN__ROUTE__5__KEY",
            "x",
            "variable CONSIGN__ROUTE__5__KEY: there is no entry 5: the list has 1 entries, counted from 0",
        ),
        (
            "CONSIGN__STORE____URL",
            "x",
            "variable CONSIGN__STORE____URL: the name has an empty part: write CONSIGN__SECTION__KEY",
        ),
        (
            "CONSIGN__STORE__URL__HOST",
            "x",
            "variable CONSIGN__STORE__URL__HOST: HOST goes deeper than the value it overrides: shorten the name",
        ),
    ] {
        assert_eq!(read_with(WHOLE, &[(variable, value)]).unwrap_err().to_string(), mistake);
    }
}

#[test]
fn names_with_hyphens_are_found_and_ambiguous_ones_refused() {
    let two = format!(
        "{LEAST}[destination.a-b]\ntype = \"embedded\"\npath = \"1\"\n[destination.a_b]\ntype = \"embedded\"\npath = \
         \"2\"\n"
    );

    let error = read_with(&two, &[("CONSIGN__DESTINATION__A_B__PATH", "3")]).unwrap_err();

    assert!(error.to_string().contains("A_B may mean a-b or a_b"), "{error}");
}

#[test]
fn urls_take_parts_from_the_environment_as_they_are() {
    let text = "[store]\nurl = \"mysql://app:${DB_PASSWORD}@db/points\"\n";

    let config = read_with(text, &[("DB_PASSWORD", "p@ss/%w")]).unwrap();
    let unset = read_with(text, &[]).unwrap_err();

    assert_eq!(database_url(&config), "mysql://app:p%40ss%2F%25w@db/points");
    assert_eq!(
        unset.to_string(),
        "consign.toml:2: store.url: uses ${DB_PASSWORD}, which the environment does not have: set DB_PASSWORD"
    );
}

#[test]
fn password_files_are_read_from_the_config_s_folder_without_their_line_break() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "s3 cr3t\n").unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    let read = |url: &str, file: &str| {
        let text = format!("[store]\nurl = \"{url}\"\npassword_file = \"{file}\"\n");
        Config::read("consign.toml", &text, folder.path(), &Environment::default())
    };

    let config = read("mysql://app@db/points", "password").unwrap();

    assert_eq!(database_url(&config), "mysql://app:s3%20cr3t@db/points");
    for (url, file, mistake) in [
        ("mysql://app:x@db/points", "password", "the url holds a password too: keep one of them"),
        ("mysql://app@db/points", "empty", "is empty: put the password into it"),
        ("mysql://app@db/points", "nowhere", "cannot be read"),
    ] {
        let error = read(url, file).unwrap_err().to_string();

        assert!(
            error.starts_with("consign.toml:3: store.password_file: ") && error.contains(mistake),
            "{error}"
        );
    }
}
