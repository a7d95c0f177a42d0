//! What the kernel says of this process, from /proc/self only: a hardened unit hides the rest of /proc.

use std::fs;

/// Ticks of the kernel's clock per second, as programs see it: 100 on every architecture that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) virtual_bytes: Option<f64>,
    pub(super) threads: Option<f64>,
    pub(super) open_fds: Option<f64>,
    pub(super) max_fds: Option<f64>,
}

impl Process {
    /// What can be read is there, and nothing else.
    pub(super) fn read() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let (stat, status, limits) = (read("stat"), read("status"), read("limits"));
        #[allow(clippy::cast_precision_loss, reason = "there are not that many")]
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        Self {
            cpu_seconds: cpu_seconds(&stat),
            resident_bytes: status_field(&status, "VmRSS:").map(|kib| kib * 1024.0),
            virtual_bytes: status_field(&status, "VmSize:").map(|kib| kib * 1024.0),
            threads: status_field(&status, "Threads:"),
            open_fds,
            max_fds: status_field(&limits, "Max open files"),
        }
    }
}

/// The 14th and 15th field; the second one is a name in brackets that may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

/// The first number of the line that begins so.
fn status_field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_its_figures() {
        let Process { cpu_seconds, resident_bytes, virtual_bytes, threads, open_fds, max_fds } =
            Process::read();
        for (name, figure, least) in [
            ("cpu", cpu_seconds, 0.0),
            ("resident", resident_bytes, 1e5),
            ("virtual", virtual_bytes, 1e6),
            ("threads", threads, 1.0),
            ("open", open_fds, 3.0),
            ("max", max_fds, 16.0),
        ] {
            assert!(figure.is_some_and(|it| it >= least), "{name}: {figure:?}");
        }
    }

    #[test]
    fn a_name_may_hold_brackets_and_spaces() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 150 0 0";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }
}
