//! What the lines of the log look like. The library logs through `log`; this is for whoever writes the lines.

use super::given::{Given, Reader};

/// The format of the log, for the binary's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// `key=value` pairs.
    #[default]
    Text,
    /// An object per line.
    Json,
}

impl LogFormat {
    /// The format that was asked for; the default where what was given is wrong, which is reported by whoever reads the
    /// rest of it.
    pub fn from_given(given: &[Given]) -> Self {
        Reader::new(given).log_format().unwrap_or_default()
    }
}

pub(super) fn log_format(text: &str) -> Option<LogFormat> {
    match text.trim() {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}
