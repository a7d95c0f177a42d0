//! The points as a CSV file for each version of the broker.

use std::collections::BTreeMap;
use std::fs;

use super::point::Point;
use crate::page::folder;

const PREFIX: &str = "curves-rabbitmq-";
const SUFFIX: &str = ".csv";
const HEAD: &str =
    "parameter,value,events_per_s,bare_publisher_events_per_s,cpu_us_per_event,peak_rss_mib,claim_ms";

pub struct Row {
    pub parameter: String,
    pub value: usize,
    pub point: Point,
}

pub fn write(version: &str, rows: &[Row]) {
    let mut text = format!("{HEAD}\n");
    for Row { parameter, value, point } in rows {
        let Point { rate, bare, cpu_us, rss_mib, claim_ms } = point;
        text += &format!("{parameter},{value},{rate:.1},{bare:.1},{cpu_us:.2},{rss_mib:.2},{claim_ms:.3}\n");
    }
    let path = folder().join(format!("{PREFIX}{version}{SUFFIX}"));
    fs::write(&path, text).unwrap();
    println!("\nall points: {}", path.display());
}

/// By the broker's version, the oldest first.
pub fn read() -> Vec<(String, Vec<Row>)> {
    let mut brokers = BTreeMap::new();
    for entry in fs::read_dir(folder()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Some(version) = name.strip_prefix(PREFIX).and_then(|it| it.strip_suffix(SUFFIX)) else {
            continue;
        };
        let text = fs::read_to_string(entry.path()).unwrap();
        let numbers: Vec<u32> = version.split('.').map_while(|it| it.parse().ok()).collect();
        brokers.insert(numbers, (version.to_owned(), text.lines().skip(1).map(row).collect()));
    }
    brokers.into_values().collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |at: usize| cells[at].parse::<f64>().unwrap();
    let (rate, bare, cpu_us, rss_mib, claim_ms) = (number(2), number(3), number(4), number(5), number(6));
    let point = Point { rate, bare, cpu_us, rss_mib, claim_ms };
    Row { parameter: cells[0].into(), value: cells[1].parse().unwrap(), point }
}
