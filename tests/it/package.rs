//! The Debian package: what is in it, that it installs into a scratch root, and that what it installs works.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use crate::harness::unique;
use crate::systemd::units::verify;
use crate::world::{OUTBOXD, World};

const CONFIGURATION: &str = "/etc/outboxd/outboxd.toml";

/// What it installs, with the modes.
const FILES: [(&str, &str); 12] = [
    ("-rw-r-----", CONFIGURATION),
    ("-rwxr-xr-x", "/usr/bin/outboxd"),
    ("-rw-r--r--", "/usr/lib/systemd/system/outboxd-once.service"),
    ("-rw-r--r--", "/usr/lib/systemd/system/outboxd.service"),
    ("-rw-r--r--", "/usr/lib/systemd/system/outboxd.timer"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/README.md"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/alerts.yml"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/changelog.gz"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/copyright"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/examples/outboxd.cron"),
    ("-rw-r--r--", "/usr/share/doc/outboxd/grafana-dashboard.json"),
    ("drwxr-x---", "/etc/outboxd/"),
];

/// A package of the binary under test, and a folder that is gone with it.
struct Package {
    folder: PathBuf,
    path: String,
}

impl Package {
    fn build() -> Package {
        let folder = env::temp_dir().join(unique("outboxd-package"));
        fs::create_dir(&folder).unwrap();
        let binary = folder.join("outboxd");
        // The debugging information would be nearly all of it.
        succeeds(Command::new("strip").args([OUTBOXD, "-o"]).arg(&binary));
        let said = succeeds(
            Command::new("sh")
                .arg("packaging/deb.sh")
                .env("BINARY", &binary)
                .env("OUT", &folder)
                .env("COMPRESSION", "none"),
        );
        Package { folder, path: said.trim_end().into() }
    }

    fn deb(&self, arguments: &[&str]) -> String {
        let (what, further) = arguments.split_first().unwrap();
        succeeds(Command::new("dpkg-deb").arg(what).arg(&self.path).args(further))
    }

    /// Extracts it; the root.
    fn extract(&self) -> PathBuf {
        let root = self.folder.join("extracted");
        self.deb(&["-x", root.to_str().unwrap()]);
        self.deb(&["-e", root.join("DEBIAN").to_str().unwrap()]);
        root
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a program prints that must succeed.
fn succeeds(command: &mut Command) -> String {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn says_its_version(binary: &Path) {
    let said = succeeds(Command::new(binary).arg("--version"));
    assert_eq!(said, format!("outboxd {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_package_holds_what_it_should_as_it_should() {
    let package = Package::build();
    assert!(package.path.ends_with(&format!(
        "/outboxd_{}_{}.deb",
        env!("CARGO_PKG_VERSION"),
        architecture()
    )));
    let control = package.deb(&["-f"]);
    let fields: BTreeMap<&str, &str> = control.lines().filter_map(|line| line.split_once(": ")).collect();
    assert_eq!((fields["Package"], fields["Version"]), ("outboxd", env!("CARGO_PKG_VERSION")));
    assert_eq!(fields["Architecture"], architecture());
    assert!(fields["Depends"].contains("libc6") && !fields["Depends"].contains('$'), "{control}");
    assert_eq!(fields["Depends"].contains("libssl3"), cfg!(feature = "tls"), "{control}");
    assert!(fields["Installed-Size"].parse::<u64>().is_ok_and(|kib| kib > 1_000), "{control}");
    assert!(fields["Maintainer"].ends_with('>') && fields["Description"].len() <= 80, "{control}");
    assert!(control.lines().filter(|line| line.starts_with(' ')).count() > 1, "{control}");

    let contents = package.deb(&["-c"]);
    let mut files = BTreeMap::new();
    for line in contents.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], "root/root", "{line}");
        files.insert(words[5].trim_start_matches('.'), words[0]);
    }
    for (mode, path) in FILES {
        assert_eq!(files.get(path), Some(&mode), "{path} in\n{contents}");
    }
    let others = files.iter().filter(|(path, _)| !FILES.iter().any(|it| it.1 == **path));
    let others: Vec<_> = others.filter(|(_, mode)| **mode != "drwxr-xr-x").collect();
    assert!(others.is_empty(), "{others:?}");

    let root = package.extract();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("DEBIAN/conffiles"), format!("{CONFIGURATION}\n"));
    succeeds(Command::new("md5sum").args(["--check", "--quiet", "DEBIAN/md5sums"]).current_dir(&root));
    for script in ["postinst", "prerm", "postrm"] {
        let text = read(&format!("DEBIAN/{script}"));
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{text}");
        assert!(!text.contains("systemctl enable") && !text.contains("systemctl start"), "{text}");
        succeeds(Command::new("sh").arg("-n").arg(root.join("DEBIAN").join(script)));
    }
    let doc = |name: &str| read(&format!("usr/share/doc/outboxd/{name}"));
    assert!(
        doc("copyright").contains("/common-licenses/Apache-2.0.\n")
            && doc("copyright").contains(" MERCHANTABILITY")
    );
    assert_eq!(doc("README.md"), fs::read_to_string("README.md").unwrap());
    says_its_version(&root.join("usr/bin/outboxd"));
    verify(&root.join("usr/lib/systemd/system"), &root.join("usr/bin/outboxd"));
}

fn architecture() -> String {
    succeeds(Command::new("dpkg").arg("--print-architecture")).trim_end().into()
}

#[test]
fn it_installs_keeps_what_an_operator_wrote_and_goes_without_a_trace() {
    let package = Package::build();
    let root = package.folder.join("root");
    for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "var/lib/dpkg/triggers", "var/log"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        fs::write(root.join(file), "").unwrap();
    }
    // Only root may install; who is not is root of a namespace of its own.
    let is_root = succeeds(Command::new("id").arg("-u")) == "0\n";
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new(if is_root { "dpkg" } else { "unshare" });
        succeeds(
            command
                .args(["--map-root-user", "dpkg"].iter().filter(|_| !is_root))
                .arg(format!("--root={}", root.display()))
                .args(["--force-depends", "--force-script-chrootless", "--force-confold"])
                .args(arguments),
        )
    };
    dpkg(&["--install", &package.path]);
    says_its_version(&root.join("usr/bin/outboxd"));
    let status = dpkg(&["--status", "outboxd"]);
    assert!(status.contains("\nStatus: install ok installed\n"), "{status}");
    let path = root.join(CONFIGURATION.trim_start_matches('/'));
    let written = "interval = \"5s\"\n";
    fs::write(&path, written).unwrap();
    dpkg(&["--install", &package.path]);
    assert_eq!(fs::read_to_string(&path).unwrap(), written);
    dpkg(&["--remove", "outboxd"]);
    assert!(path.exists() && !root.join("usr/bin/outboxd").exists());
    dpkg(&["--purge", "outboxd"]);
    for left in ["etc/outboxd", "usr/share/doc/outboxd", "usr/lib/systemd/system/outboxd.service"] {
        assert!(!root.join(left).exists(), "{left}");
    }
}

/// Every line of it that is commented out can be used as it is.
#[test]
fn the_example_configuration_is_accepted_as_it_is_and_with_every_example_in_it() {
    let world = World::new();
    let example = fs::read_to_string("packaging/outboxd.toml").unwrap();
    world.configure(&example);
    world.once(&["--dry-run"], 0);
    let lines = example.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        _ => line,
    });
    let all = lines.collect::<Vec<_>>().join("\n");
    assert!(all.contains("\n[[route]]\n"), "{all}");
    world.configure(&all);
    // The environment has other addresses, and wins.
    world.once(&["--dry-run"], 0);
}
