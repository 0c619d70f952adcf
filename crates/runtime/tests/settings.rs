//! Settings: layers, and all faults at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use secrecy::ExposeSecret as _;
use starling_engine::{coordinator::CoordinatorSettings, rate::ConcurrencyLimits};
use starling_runtime::settings::{
    JsonAsked, ModelPrice, Nearby, ProviderSettings, Settings, SettingsError, Sources, parse_override,
};
use std::{io::Write as _, path::PathBuf, time::Duration};

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn file(text: &str) -> (tempfile::NamedTempFile, PathBuf) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let path = file.path().to_owned();
    (file, path)
}

#[test]
fn the_built_in_defaults_are_complete_and_sound() {
    let settings = Settings::defaults().unwrap();
    assert_eq!(settings.topics.partitions.worker, 128);
    assert_eq!(settings.kafka.session_timeout, Duration::from_secs(10));
    assert!(settings.model.is_offline());
    assert_eq!(settings.coordinator, CoordinatorSettings::default(), "default.toml says what the code does");
    assert!(!settings.model.cache.is_on() && settings.model.cache.folder.is_none());
    assert!(settings.model.prices.is_empty(), "what a call costs is not known until somebody says it");
}

#[test]
fn the_address_of_a_registry_may_hold_its_login_and_a_fault_does_not_show_it() {
    let load =
        |pairs: &[(&str, &str)]| Settings::load(&Sources { environment: env(pairs), ..Sources::default() });
    let url = ("STARLING__REGISTRY__URL", "https://me:p%40ss@registry.example/apis/ccompat/v7");
    let registry = load(&[url]).unwrap().registry;
    assert_eq!(registry.url.unwrap().as_str(), "https://registry.example/apis/ccompat/v7");
    assert_eq!(registry.user.as_deref(), Some("me"));
    assert_eq!(registry.password.unwrap().expose_secret(), "p@ss");

    let (_file, path) = file("from-file\n");
    let in_file = ("STARLING__REGISTRY__PASSWORD_FILE", path.to_str().unwrap());
    let user = ("STARLING__REGISTRY__USER", "you");
    let registry = load(&[url, user, in_file]).unwrap().registry;
    assert_eq!(registry.user.as_deref(), Some("you"));
    assert_eq!(registry.password.unwrap().expose_secret(), "from-file");

    for faulty in [
        "me:hunter2@registry",
        "ftp://me:hunter2@registry",
        "http://a:hunter2@b,http://c",
        "http://b?k=hunter2",
    ] {
        let text = load(&[("STARLING__REGISTRY__URL", faulty)]).unwrap_err().to_string();
        assert!(text.contains("registry.url") && !text.contains("hunter2"), "{text}");
    }
    let faults = load(&[
        ("STARLING__REGISTRY__PASSWORD", "hunter2"),
        ("STARLING__REGISTRY__CA_FILE", path.to_str().unwrap()),
        ("STARLING__REGISTRY__MODE", "both"),
    ]);
    let text = faults.unwrap_err().to_string();
    for name in ["registry.user", "registry.ca_file", "registry.mode"] {
        assert!(text.contains(name), "{name} is missing: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn later_layers_win() {
    let (_first, first) =
        file("[kafka]\nbrokers = \"file:1\"\nqueue_records = 7\n[topics]\nprefix = \"one\"\n");
    let (_second, second) = file("[topics]\nprefix = \"two\"\n[telemetry]\nlog_level = \"debug\"\n");
    let settings = Settings::load(&Sources {
        files: vec![first, second],
        environment: env(&[
            ("STARLING__KAFKA__BROKERS", "env:1"),
            ("STARLING__KAFKA__PROPERTIES__SECURITY_PROTOCOL", "SSL"),
            ("STARLING__PROCESSOR__SLOTS__WORKER", "3"),
            ("STARLING__TOPICS__POOLS", "gpu, big"),
            ("OPENAI_API_KEY", "from-openai"),
            ("STARLING__MODEL__API_KEY", "from-starling"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("UNRELATED", "x"),
        ]),
        overrides: env(&[
            ("kafka.brokers", "flag:1"),
            ("model.prices.gpt-4.1.input", "2"),
            ("model.prices.gpt-4.1.output", "8"),
        ]),
    })
    .unwrap();
    assert_eq!(settings.kafka.brokers, "flag:1");
    assert_eq!(settings.kafka.queue_records, 7);
    assert_eq!(settings.kafka.properties["security.protocol"].expose_secret(), "SSL");
    assert_eq!(settings.topics.prefix, "two");
    assert_eq!(settings.topics.pools, ["gpu", "big"]);
    assert_eq!(settings.processor.slots.worker, 3);
    assert_eq!(settings.telemetry.log_level, "debug");
    assert_eq!(settings.telemetry.otlp_endpoint.as_deref(), Some("http://collector:4318"));
    assert_eq!(settings.model.provider.api_key.as_ref().unwrap().expose_secret(), "from-starling");
    assert_eq!(settings.model.prices["gpt-4.1"], ModelPrice { input: 2.0, cached_input: 2.0, output: 8.0 });
    assert!(!settings.model.is_offline());
}

#[test]
fn presets_stand_below_what_is_set_and_take_no_key_of_others() {
    let (_file, path) = file(
        "[model]\npreset = \"deepseek\"\nfallback = [\"near\", \"far\"]\n[model.extra_body]\nthinking = { type = \"off\" }\n\
         [providers.far]\npreset = \"openai\"\nroles = [\"judge\"]\nomit = [\"temperature\"]\n\
         [providers.near]\npreset = \"ollama\"\nname = \"llama3.2\"\n\
         [providers.unused]\npreset = \"google\"\n",
    );
    let environment = env(&[
        ("OPENAI_API_KEY", "sk-openai"),
        ("OPENAI_BASE_URL", "http://elsewhere/v1"),
        ("DEEPSEEK_API_KEY", "sk-deepseek"),
        ("STARLING__PROVIDERS__NEAR__BASE_URL", "http://box:1/v1"),
    ]);
    let sources = Sources { files: vec![path.clone()], environment, ..Sources::default() };
    let model = Settings::load(&sources).unwrap().model;
    let key =
        |provider: &ProviderSettings| provider.api_key.as_ref().map(|key| key.expose_secret().to_owned());
    assert!(!model.is_offline());
    assert_eq!(model.provider.base_url.as_deref(), Some("https://api.deepseek.com/v1"));
    assert_eq!(key(&model.provider).as_deref(), Some("sk-deepseek"));
    assert_eq!((model.provider.name.as_str(), model.provider.json), ("deepseek-chat", JsonAsked::Object));
    assert_eq!(model.provider.extra_body["thinking"]["type"], "off");
    let [near, far] = model.fallbacks.as_slice() else { panic!("{:?}", model.fallbacks) };
    assert_eq!(near.base_url.as_deref(), Some("http://box:1/v1"));
    assert_eq!((near.name.as_str(), key(near)), ("llama3.2", None));
    assert_eq!(far.base_url.as_deref(), Some("https://api.openai.com/v1"));
    assert_eq!(key(far).as_deref(), Some("sk-openai"));
    assert_eq!((&far.roles[..], &far.omit[..]), (&["judge".to_owned()][..], &["temperature".to_owned()][..]));

    // All that is missing is told at once.
    let overrides = env(&[
        ("model.fallback", "near,far,nobody"),
        ("providers.near.name", ""),
        ("providers.near.newest", "false"),
        ("providers.far.roles", "cook"),
        ("providers.unused.preset", "acme"),
    ]);
    let sources = Sources { files: vec![path], overrides, ..Sources::default() };
    let text = Settings::load(&sources).unwrap_err().to_string();
    for part in [
        "model.api_key: expected a key, or one in the environment variable DEEPSEEK_API_KEY",
        "providers.far.api_key: expected a key, or one in the environment variable OPENAI_API_KEY",
        "providers.near.name: expected the name of a model",
        "providers.far.roles: expected some of plan",
        "providers.unused.preset: expected one of anthropic",
        "model.fallback: expected names of sections of [providers], each once, found \"nobody\"",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(text.contains("6 fault"), "{text}");
}

#[test]
fn an_ollama_may_have_any_model_and_is_used_only_where_that_is_set() {
    let load = |overrides: &[(&str, &str)]| {
        Settings::load(&Sources { overrides: env(overrides), ..Sources::default() }).map(|all| all.model)
    };
    let model = load(&[("model.preset", "ollama")]).unwrap();
    assert!(model.provider.is_open() && !model.is_offline());
    assert_eq!(model.provider.models().count(), 0, "nobody knows yet which it is");
    assert!(!load(&[("model.preset", "ollama"), ("model.name", "m")]).unwrap().provider.is_open());
    assert!(load(&[("model.preset", "vllm")]).is_err(), "there a model must be named");

    assert_eq!(load(&[]).unwrap().ollama.nearby, Nearby::Tell);
    for (word, nearby) in [("off", Nearby::Off), ("tell", Nearby::Tell), ("use", Nearby::Use)] {
        let model = load(&[("model.ollama.nearby", word)]).unwrap();
        assert_eq!(
            (model.ollama.nearby, model.is_offline()),
            (nearby, true),
            "settings alone switch nothing"
        );
    }
    assert!(load(&[("model.ollama.nearby", "always"), ("model.ollama.base_url", "localhost")]).is_err());
}

#[test]
fn every_preset_is_complete() {
    let text = Settings::load(&Sources { overrides: env(&[("model.preset", "?")]), ..Sources::default() })
        .unwrap_err()
        .to_string();
    let named = text.split("expected one of ").nth(1).unwrap().split(", found").next().unwrap().to_owned();
    let presets: Vec<&str> = named.split(", ").collect();
    assert!(presets.len() >= 11, "{presets:?}");
    for preset in presets {
        let overrides = env(&[("model.preset", preset), ("model.name", "m"), ("model.api_key", "k")]);
        let model = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap().model;
        let address = model.provider.base_url.unwrap_or_default();
        assert!(address.starts_with("https://") || address.starts_with("http://localhost:"), "{preset}");
    }
}

#[test]
fn prices_are_those_of_the_settings_and_half_a_price_is_none() {
    let (_file, path) =
        file("[model.prices]\n\"llama3.2\" = { input = 0.05, cached_input = 0.01, output = 0 }\n");
    let settings = Settings::load(&Sources { files: vec![path], ..Sources::default() }).unwrap();
    let prices: Vec<_> = settings.model.prices.into_iter().collect();
    assert_eq!(
        prices,
        [("llama3.2".to_owned(), ModelPrice { input: 0.05, cached_input: 0.01, output: 0.0 })]
    );
    for (set, found) in [
        ("input", "no output"),
        ("output", "no input"),
        ("cached_input", "cached_input alone"),
        ("cached", "another name"),
    ] {
        let overrides = vec![(format!("model.prices.m-1.2.{set}"), "1".to_owned())];
        let text = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap_err().to_string();
        assert!(text.contains("model.prices.m-1.2") && text.contains(found), "{text}");
    }
}

#[test]
fn open_calls_are_bounded_and_shared_in_a_way_that_can_be() {
    let of = |overrides: &[(&str, &str)]| {
        Settings::load(&Sources { overrides: env(overrides), ..Sources::default() })
    };
    let model = of(&[]).unwrap().model;
    assert_eq!(model.concurrency, ConcurrencyLimits::default());
    assert!(model.bulkheads.plan > 0.0);
    let whole = [("model.bulkheads.work", "0.6"), ("model.bulkheads.judge", "0.2")];
    assert!(of(&whole).is_ok(), "with a tenth for plans and one for answers that is all");
    let faults = |overrides| of(overrides).unwrap_err().to_string();
    let text = faults(&[("model.bulkheads.work", "0.7"), ("model.concurrency.min", "65")]);
    assert!(text.contains("model.bulkheads") && text.contains("1.100 in all"), "{text}");
    assert!(text.contains("start 64, min 65, max 1000"), "{text}");
    assert!(faults(&[("model.concurrency.tolerance", "2")]).contains("model.concurrency.tolerance"));
}

#[test]
fn all_faults_are_reported_at_once_with_their_origin() {
    let (_file, path) = file(
        "[kafka]\nsession_timeout = 10\nbrokerz = \"x\"\n[topics]\npartitions = 5\n[model]\nname = [1]\n\
         [processor.slots]\nworker = 0\n",
    );
    let missing = PathBuf::from("/nonexistent/starling.toml");
    let error = Settings::load(&Sources {
        files: vec![path.clone(), missing],
        environment: env(&[
            ("STARLING__KAFKA__GROUP_PROTOCOL", "gossip"),
            ("STARLING__TELEMETRY__SAMPLE_RATIO", "1.5"),
            ("STARLING__TYPO", "1"),
            ("OPENAI_BASE_URL", "localhost:8080"),
            ("STARLING__TOPICS__PREFIX", "no spaces"),
        ]),
        overrides: env(&[("topics.max_message", "8MB")]),
    })
    .unwrap_err();
    let of = |path: &str| {
        let found = error.faults.iter().find(|fault| fault.path == path);
        found.unwrap_or_else(|| panic!("no fault for {path} in {error}")).clone()
    };
    let origin = format!("file {}", path.display());
    assert_eq!(of("kafka.session_timeout").origin, origin);
    assert_eq!(of("kafka.session_timeout").found, "10");
    assert_eq!(of("kafka.brokerz").found, "an unknown name");
    assert_eq!(of("topics.partitions").origin, origin);
    assert!(of("processor.slots.worker").expected.contains("from 1"));
    assert_eq!(of("model.name").found, "a list of 1");
    let gossip = of("kafka.group_protocol");
    assert_eq!(gossip.expected, "one of classic, consumer");
    assert_eq!(gossip.origin, "environment variable STARLING__KAFKA__GROUP_PROTOCOL");
    assert_eq!(of("telemetry.sample_ratio").found, "\"1.5\"");
    assert_eq!(of("model.base_url").origin, "environment variable OPENAI_BASE_URL");
    assert_eq!(of("topics.prefix").found, "\"no spaces\"");
    assert_eq!(of("typo").expected, "the name of a setting");
    assert!(of("topics.max_message").expected.contains("8MiB"));
    assert_eq!(of("(all)").origin, "file /nonexistent/starling.toml");
    assert_eq!(error.faults.len(), 12, "{error}");
}

#[test]
fn settings_that_would_break_a_promise_together_are_refused() {
    let faults = |pairs: &[(&str, &str)]| {
        let error = Settings::load(&Sources { overrides: env(pairs), ..Sources::default() }).unwrap_err();
        error.faults.into_iter().map(|fault| (fault.path, fault.expected)).collect::<Vec<_>>()
    };
    let kept = "at least coordinator.max_deadline";
    let all = [
        (&[("coordinator.max_deadline", "8d")][..], &["inboxes", "content", "control"][..], kept),
        (&[("topics.retention.inboxes", "23h")], &["inboxes"], kept),
        (&[("topics.retention.control", "1h")], &["control"], kept),
        (&[("topics.max_message", "512KiB")], &["max_record", "max_intent"], "at most topics.max_message"),
        (&[("inputs.overlap_tokens", "1500")], &["overlap_tokens"], "at most half of inputs.chunk_tokens"),
        (
            &[
                ("inputs.chunk_tokens", "32000"),
                ("topics.max_message", "256KiB"),
                ("intake.max_intent", "64KiB"),
                ("statelog.max_record", "128KiB"),
                ("worker.max_output", "64KiB"),
            ],
            &["chunk_tokens"],
            "at most topics.max_message less 16 KiB",
        ),
        (&[("worker.max_output", "8MiB")], &["max_output"], "at most topics.max_message less 16 KiB"),
        (&[("topics.replication", "3")], &["min_insync_replicas"], "at least 2"),
        (
            &[("topics.replication", "1"), ("topics.min_insync_replicas", "2")],
            &["min_insync_replicas"],
            "at most topics.replication",
        ),
        (&[("kafka.properties.acks", "1")], &["properties.acks"], "not to be set"),
        (&[("kafka.properties.request.required.acks", "1")], &["required.acks"], "not to be set"),
        (&[("kafka.properties.message.max.bytes", "1000000")], &["message.max.bytes"], "topics.max_message"),
        (
            &[("coordinator.max_cost_usd", "1"), ("model.base_url", "http://x/v1"), ("model.judge", "sharp")],
            &["coordinator.max_cost_usd"],
            "a price in model.prices for gpt-4o-mini, sharp",
        ),
        (
            &[
                ("tenants.shop.max_cost_usd", "1"),
                ("tenants.shop.per", "1d"),
                ("model.base_url", "http://x/v1"),
            ],
            &["tenants.shop.max_cost_usd"],
            "a price in model.prices for gpt-4o-mini",
        ),
    ];
    for (pairs, paths, expected) in all {
        let found = faults(pairs);
        assert_eq!(found.len(), paths.len(), "{pairs:?}: {found:?}");
        for ((path, found), wanted) in found.iter().zip(paths) {
            assert!(path.ends_with(wanted), "{pairs:?}: {path}, {wanted}");
            assert!(found.contains(expected), "{pairs:?}: {found}");
        }
    }
    let together = [("topics.retention.inboxes", "1h"), ("topics.replication", "2"), ("kafka.brokerz", "x")];
    assert_eq!(faults(&together).len(), 3, "all at once");
    let sound = [
        ("topics.replication", "3"),
        ("topics.min_insync_replicas", "2"),
        ("coordinator.max_cost_usd", "0.5"),
        ("model.prices.gpt-4o-mini.input", "0.15"),
        ("model.prices.gpt-4o-mini.output", "0.6"),
    ];
    let settings = Settings::load(&Sources { overrides: env(&sound), ..Sources::default() }).unwrap();
    let coordinator = settings.coordinator;
    assert_eq!(
        (coordinator.max_cost_usd, coordinator.max_calls, coordinator.max_tokens),
        (Some(0.5), None, None)
    );
}

#[test]
fn tenants_have_a_section_each_and_all_their_faults_are_told() {
    let (_file, path) = file(
        "[tenants.default]\nmax_calls = 1000\nper = \"1d\"\n[tenants.\"a.b\"]\nmax_tokens = 5\nper = \"12h\"\n\
         [tenants.free]\n",
    );
    let sources = |overrides: &[(&str, &str)]| Sources {
        files: vec![path.clone()],
        environment: env(&[
            ("STARLING__TENANTS__SHOP__MAX_CALLS", "7"),
            ("STARLING__TENANTS__SHOP__PER", "1m"),
        ]),
        overrides: env(overrides),
    };
    let tenants = Settings::load(&sources(&[])).unwrap().coordinator.tenants;
    let of = |tenant: &str| tenants.of(tenant).map(ToString::to_string);
    assert_eq!(of("shop").as_deref(), Some("7 calls in 1m"));
    assert_eq!(of("a.b").as_deref(), Some("5 tokens in 12h"));
    assert_eq!((of("free"), of("anybody").as_deref()), (None, Some("1000 calls in 1d")));
    assert_eq!(Settings::defaults().unwrap().coordinator.tenants.of("anybody"), None);

    let faulty = [
        ("tenants.shop.per", "5s"),
        ("tenants.shop.max_tokens", "many"),
        ("tenants.lab.max_calls", "3"),
        ("tenants.lab.max_cols", "3"),
        ("tenants.other", "3"),
    ];
    let error = Settings::load(&sources(&faulty)).unwrap_err();
    let mut paths: Vec<&str> = error.faults.iter().map(|fault| fault.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "tenants.lab.max_cols",
        "tenants.lab.per",
        "tenants.other",
        "tenants.shop.max_tokens",
        "tenants.shop.per",
    ];
    assert_eq!(paths, expected, "{error}");
}

#[test]
fn secrets_are_never_shown() {
    let sources = Sources {
        environment: env(&[
            ("OPENAI_API_KEY", "s3cret"),
            ("STARLING__KAFKA__PROPERTIES__SASL_PASSWORD", "s3cret"),
        ]),
        ..Sources::default()
    };
    assert!(!format!("{:?}", Settings::load(&sources).unwrap()).contains("s3cret"));

    let (_file, path) = file("[model]\napi_key = [\"s3cret\"]\n");
    let error: SettingsError =
        Settings::load(&Sources { files: vec![path], ..Sources::default() }).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"));
}

#[test]
fn kafka_is_told_who_this_is_by_files() {
    let (_password, password) = file("s3cret\n");
    let (_pem, pem) = file("a certificate");
    let sources = |more: &[(&str, &str)]| {
        let (password, pem) = (password.to_str().unwrap(), pem.to_str().unwrap());
        let all = [
            ("STARLING__KAFKA__SECURITY__PROTOCOL", "sasl_ssl"),
            ("STARLING__KAFKA__SECURITY__USERNAME", "worker"),
            ("STARLING__KAFKA__SECURITY__PASSWORD_FILE", password),
            ("STARLING__KAFKA__SECURITY__CA_FILE", pem),
            ("STARLING__KAFKA__SECURITY__CERTIFICATE_FILE", pem),
            ("STARLING__KAFKA__SECURITY__KEY_FILE", pem),
        ];
        Sources { environment: env(&[&all, more].concat()), ..Sources::default() }
    };
    let settings = Settings::load(&sources(&[])).unwrap();
    let login = settings.kafka.security.login.as_ref().unwrap();
    assert_eq!((login.username.as_str(), login.password.as_str()), ("worker", "s3cret"));
    assert!(settings.kafka.security.tls.as_ref().is_some_and(|tls| tls.identity.is_some()));
    assert!(!format!("{settings:?}").contains("s3cret"));

    let faults = |more: &[(&str, &str)]| {
        let error = Settings::load(&sources(more)).unwrap_err();
        error.faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    let protocol = "kafka.security.protocol";
    assert_eq!(faults(&[("STARLING__KAFKA__SECURITY__PROTOCOL", "ssl")]), [protocol]);
    assert_eq!(
        faults(&[("STARLING__KAFKA__SECURITY__PROTOCOL", "plaintext")]),
        [protocol, protocol],
        "neither certificates nor a name would be used"
    );
    assert_eq!(faults(&[("STARLING__KAFKA__SECURITY__CA_FILE", "/nonexistent")]), ["kafka.security.ca_file"]);
    assert_eq!(faults(&[("STARLING__KAFKA__SECURITY__KEY_FILE", "")]), ["kafka.security.certificate_file"]);
    assert_eq!(faults(&[("STARLING__KAFKA__SECURITY__USERNAME", "")]), ["kafka.security.username"]);
}

#[test]
fn overrides_are_read_from_flags() {
    assert_eq!(parse_override("a.b=c=d").unwrap(), ("a.b".to_owned(), "c=d".to_owned()));
    assert!(parse_override("a.b").is_err());
    assert!(parse_override("=c").is_err());
}
