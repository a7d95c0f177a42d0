//! Certificates for TLS tests, made once per process with the `openssl` program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::guard::Guard;
use super::rabbit::RabbitOptions;
use super::root::find_in_path;

/// What every call needs, so that the machine's own configuration does not matter.
const CONFIG: &str = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = unnamed\n";

/// The password of the PKCS#12 files.
pub const PKCS12_PASSWORD: &str = "pkcs12-password";

/// Two authorities, and certificates that are right or wrong in one way each.
pub struct Certificates {
    /// Removes the folder when the process ends for any reason.
    guard: Guard,
    authority: Identity,
    other_authority: Identity,
    server: Identity,
    wrong_name: Identity,
    expired: Identity,
    client: Identity,
    stranger: Identity,
}

/// A certificate with its key.
pub struct Identity {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM, PKCS#8, without a password.
    pub key: PathBuf,
}

impl Certificates {
    /// The process's certificates; they are made by the first call.
    ///
    /// # Panics
    /// Panics when `openssl` is missing or fails.
    pub fn make() -> &'static Certificates {
        static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(Certificates::new);
        &CERTIFICATES
    }

    /// The authority that has signed all but `stranger`, and the file to trust.
    pub fn ca(&self) -> &Path {
        &self.authority.certificate
    }

    /// An authority that has signed `stranger` only. Whoever trusts this one alone must refuse the servers.
    pub fn other_ca(&self) -> &Path {
        &self.other_authority.certificate
    }

    /// For `localhost` and 127.0.0.1.
    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// For `elsewhere.example` only.
    pub fn wrong_name(&self) -> &Identity {
        &self.wrong_name
    }

    /// For `localhost` and 127.0.0.1, but it ended yesterday.
    pub fn expired(&self) -> &Identity {
        &self.expired
    }

    /// For the client that calls itself `outboxd`.
    pub fn client(&self) -> &Identity {
        &self.client
    }

    /// For a client with the same name, by the other authority.
    pub fn stranger(&self) -> &Identity {
        &self.stranger
    }

    fn new() -> Certificates {
        assert!(find_in_path("openssl").is_some(), "openssl is not installed; run: make prepare");
        let guard = Guard::for_server("");
        let maker = Maker { folder: guard.folder() };
        fs::write(maker.path("config"), CONFIG).expect("the private folder can be written");
        let authority = maker.authority("authority");
        let other_authority = maker.authority("other-authority");
        let here = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let there = "subjectAltName=DNS:elsewhere.example";
        let user = "extendedKeyUsage=clientAuth";
        Certificates {
            server: maker.signed("server", "localhost", here, 3650, &authority),
            wrong_name: maker.signed("wrong-name", "elsewhere.example", there, 3650, &authority),
            expired: maker.signed("expired", "localhost", here, -1, &authority),
            client: maker.signed("client", "outboxd", user, 3650, &authority),
            stranger: maker.signed("stranger", "outboxd", user, 3650, &other_authority),
            authority,
            other_authority,
            guard,
        }
    }
}

impl Identity {
    /// The certificate's text, for a server's private folder.
    pub fn certificate_text(&self) -> String {
        fs::read_to_string(&self.certificate).expect("a certificate")
    }

    /// The key's text.
    pub fn key_text(&self) -> String {
        fs::read_to_string(&self.key).expect("a key")
    }

    /// Both in one PKCS#12 file, with `PKCS12_PASSWORD`.
    pub fn pkcs12(&self) -> Vec<u8> {
        let password = format!("pass:{PKCS12_PASSWORD}");
        let mut command = Command::new("openssl");
        command.args(["pkcs12", "-export", "-passout", &password, "-in"]).arg(&self.certificate);
        run(command.arg("-inkey").arg(&self.key))
    }

    /// Options for a broker that listens for TLS on this port too and shows this certificate.
    ///
    /// Further lines, such as `ssl_options.verify = verify_peer`, can be added.
    pub fn rabbit_options(&self, port: u16) -> RabbitOptions {
        let ca = Certificates::make().ca();
        RabbitOptions {
            config: vec![
                format!("listeners.ssl.1 = 127.0.0.1:{port}"),
                format!("ssl_options.cacertfile = {}", ca.display()),
                "ssl_options.certfile = {folder}/certificate.pem".to_owned(),
                "ssl_options.keyfile = {folder}/key.pem".to_owned(),
            ],
            files: vec![
                ("certificate.pem".to_owned(), self.certificate_text()),
                ("key.pem".to_owned(), self.key_text()),
            ],
        }
    }
}

struct Maker<'a> {
    folder: &'a Path,
}

impl Maker<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn authority(&self, name: &str) -> Identity {
        let identity = self.identity(name);
        let mut command = self.request(name, &identity);
        command.args(["-x509", "-days", "3650", "-addext", "basicConstraints=critical,CA:TRUE"]);
        command.args(["-addext", "keyUsage=critical,keyCertSign"]);
        run(command.arg("-out").arg(&identity.certificate));
        identity
    }

    fn signed(&self, name: &str, subject: &str, extension: &str, days: i32, by: &Identity) -> Identity {
        let identity = self.identity(name);
        let request = self.path(&format!("{name}.csr"));
        let mut command = self.request(subject, &identity);
        run(command.args(["-addext", extension, "-out"]).arg(&request));
        let mut command = Command::new("openssl");
        command.args(["x509", "-req", "-copy_extensions", "copy", "-days", &days.to_string(), "-in"]);
        command.arg(&request).arg("-CA").arg(&by.certificate).arg("-CAkey").arg(&by.key);
        command.arg("-CAserial").arg(self.path("serial")).arg("-CAcreateserial");
        run(command.arg("-out").arg(&identity.certificate));
        identity
    }

    /// The paths of a certificate to make, and its key.
    fn identity(&self, name: &str) -> Identity {
        let (certificate, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        let mut command = Command::new("openssl");
        command.args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        run(command.arg("-out").arg(&key));
        Identity { certificate, key }
    }

    fn request(&self, subject: &str, identity: &Identity) -> Command {
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-subj", &format!("/CN={subject}"), "-config"]);
        command.arg(self.path("config")).arg("-key").arg(&identity.key);
        command
    }
}

/// Runs the program and returns what it printed.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run openssl: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {errors}");
    output.stdout
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::{Rabbit, free_port};
    use super::*;

    fn openssl(arguments: &[&str], paths: &[&Path]) -> (bool, String) {
        let output = Command::new("openssl").args(arguments).args(paths).output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    /// What a verifier that trusts this authority says about a certificate.
    fn verify(ca: &Path, purpose: &str, identity: &Identity) -> (bool, String) {
        let ca = ca.to_str().unwrap();
        openssl(&["verify", "-CAfile", ca, "-purpose", purpose], &[&identity.certificate])
    }

    #[test]
    fn each_certificate_is_right_or_wrong_in_one_way() {
        let certificates = Certificates::make();
        let (ca, other) = (certificates.ca(), certificates.other_ca());
        assert!(verify(ca, "sslserver", certificates.server()).0);
        assert!(verify(ca, "sslserver", certificates.wrong_name()).0);
        assert!(verify(ca, "sslclient", certificates.client()).0);
        assert!(verify(other, "sslclient", certificates.stranger()).0);
        let (valid, words) = verify(ca, "sslserver", certificates.expired());
        assert!(!valid && words.contains("has expired"), "{words}");
        for (ca, identity) in [(other, certificates.server()), (ca, certificates.stranger())] {
            let (valid, words) = verify(ca, "any", identity);
            assert!(!valid && words.contains("unable to get local issuer"), "{words}");
        }
        for (identity, matches) in [(certificates.server(), true), (certificates.wrong_name(), false)] {
            for check in [["-checkhost", "localhost"], ["-checkip", "127.0.0.1"]] {
                let words =
                    openssl(&["x509", "-noout", check[0], check[1], "-in"], &[&identity.certificate]).1;
                assert_eq!(!words.contains("NOT match"), matches, "{words}");
            }
        }
        assert!(certificates.client().key_text().starts_with("-----BEGIN PRIVATE KEY-----"));
        assert!(!certificates.client().pkcs12().is_empty());
    }

    /// The answer to a client's header over TLS: the broker's first method, or why there is none.
    fn ask(port: u16, ca: &Path, name: &str, client: Option<&Identity>) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-verify_return_error"]);
        command.args(["-quiet", "-verify_hostname", name, "-CAfile"]).arg(ca);
        if let Some(identity) = client {
            command.arg("-cert").arg(&identity.certificate).arg("-key").arg(&identity.key);
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = pipes.spawn().unwrap();
        // It ends by itself when the broker closes, which it does ten seconds after a header without an answer,
        // so its input has to stay open until its output has come.
        let mut input = process.stdin.take().unwrap();
        let _ = input.write_all(b"AMQP\x00\x00\x09\x01");
        let (mut output, mut buffer) = (process.stdout.take().unwrap(), [0; 1024]);
        let length = output.read(&mut buffer).unwrap();
        drop((input, output));
        let _ = process.kill();
        let rest = process.wait_with_output().unwrap();
        String::from_utf8_lossy(&[&buffer[..length], &rest.stderr].concat()).into_owned()
    }

    #[test]
    fn a_broker_speaks_tls_with_these_certificates() {
        let certificates = Certificates::make();
        let port = free_port();
        let mut options = certificates.server().rabbit_options(port);
        options.config.push("ssl_options.verify = verify_peer".to_owned());
        options.config.push("ssl_options.fail_if_no_peer_cert = true".to_owned());
        let _rabbit = Rabbit::start(&options);
        let client = Some(certificates.client());
        let answer = ask(port, certificates.ca(), "localhost", client);
        assert!(answer.contains("PLAIN"), "{answer}");
        let answer = ask(port, certificates.other_ca(), "localhost", client);
        assert!(answer.contains("verify error") && !answer.contains("PLAIN"), "{answer}");
        let answer = ask(port, certificates.ca(), "elsewhere.example", client);
        assert!(answer.contains("ostname mismatch") && !answer.contains("PLAIN"), "{answer}");
        for client in [None, Some(certificates.stranger())] {
            let answer = ask(port, certificates.ca(), "localhost", client);
            assert!(!answer.contains("PLAIN"), "{answer}");
        }
    }
}
