//! One figure: what was measured, what stands beside it, and what it is to reach.

use std::fmt::{self, Display, Formatter};

/// A figure with its name and its unit.
pub struct Figure {
    name: String,
    measured: String,
    value: f64,
    unit: String,
    beside: String,
    ratio: Option<f64>,
    spread: String,
    goal: Option<(String, bool)>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        let (measured, beside, spread) = (with_unit(value, unit), String::new(), String::new());
        Self {
            name: name.into(),
            measured,
            value,
            unit: unit.into(),
            beside,
            ratio: None,
            spread,
            goal: None,
        }
    }

    /// What else is to be said of the figure itself.
    pub fn and(mut self, text: &str) -> Self {
        self.measured += text;
        self
    }

    /// What was measured in the same run, to compare it with.
    pub fn beside(mut self, text: impl Into<String>) -> Self {
        self.beside = text.into();
        self
    }

    /// The figure over what stands beside it.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// The same of each round: their median, and the least and the most, which tell what the noise is.
    pub fn ratios(mut self, rounds: &[f64]) -> Self {
        self.spread = format!(" {}", range(rounds));
        self.ratio(median(rounds.iter().copied()))
    }

    /// For the ratio where there is one, otherwise for the figure.
    pub fn at_most(self, most: f64) -> Self {
        let reached = self.judged() <= most;
        let goal = self.limit(most);
        self.reaches(format!("at most {goal}"), reached)
    }

    /// For the ratio where there is one, otherwise for the figure.
    pub fn at_least(self, least: f64) -> Self {
        let reached = self.judged() >= least;
        let goal = self.limit(least);
        self.reaches(format!("at least {goal}"), reached)
    }

    /// A goal of another kind.
    pub fn reaches(mut self, goal: impl Into<String>, reached: bool) -> Self {
        self.goal = Some((goal.into(), reached));
        self
    }

    /// A row of the table.
    pub fn cells(self) -> Vec<String> {
        let ratio = self.ratio.map(|ratio| format!("{}{}", number(ratio), self.spread));
        let (goal, met) = match self.goal {
            Some((goal, reached)) => (goal, if reached { "yes" } else { "**no**" }),
            None => (String::new(), ""),
        };
        let cells = [self.name, self.measured, self.beside, ratio.unwrap_or_default(), goal, met.into()];
        cells.map(|cell| cell.replace('|', "\\|")).into()
    }

    /// As its goal says it: a ratio has no unit.
    fn limit(&self, limit: f64) -> String {
        let unit = if self.ratio.is_none() { self.unit.as_str() } else { "" };
        format!("{limit} {unit}").trim_end().into()
    }

    fn judged(&self) -> f64 {
        self.ratio.unwrap_or(self.value)
    }
}

impl Display for Figure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { name, measured, beside, ratio, spread, goal, .. } = self;
        write!(f, "\n{name}\n    measured: {measured}")?;
        if !beside.is_empty() {
            write!(f, "\n    beside:   {beside}")?;
        }
        if let Some(ratio) = ratio {
            write!(f, "\n    ratio:    {}{spread}", number(*ratio))?;
        }
        if let Some((goal, reached)) = goal {
            write!(f, "\n    goal:     {goal}{}", if *reached { "" } else { "  MISSED" })?;
        }
        Ok(())
    }
}

/// `12,000 events/s`, `2.30 ms`.
pub fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

/// `50,000`.
pub fn count(number: usize) -> String {
    self::number(number as f64)
}

/// Three digits or more, unless it is a whole number.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        it if it >= 99.95 || it.fract() == 0.0 => 0,
        it if it >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let whole = text.find('.').unwrap_or(text.len());
    let mut grouped = String::new();
    for (place, digit) in text[..whole].char_indices() {
        if place > 0 && (whole - place) % 3 == 0 && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &text[whole..]
}

/// The middle one of an odd number of figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The least and the most.
pub fn range(figures: &[f64]) -> String {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    format!("({} to {})", number(least), number(most))
}
