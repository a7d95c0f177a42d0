//! A plot of the last hour as an inline SVG: no script, no external resource. Pure.

use std::fmt::Write;

/// The drawing's own units. It is as wide as the page gives it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// How far the plots reach back, in seconds: the least of these that holds all there is.
const REACHES: [(f64, &str); 6] = [
    (120.0, "2 min"),
    (300.0, "5 min"),
    (600.0, "10 min"),
    (1200.0, "20 min"),
    (1800.0, "30 min"),
    (3600.0, "1 h"),
];

/// A value at a moment so many seconds ago; none where it is not known.
pub(super) type Point = (f64, Option<f64>);

pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    /// What is plotted, the oldest first.
    pub(super) points: &'a [Point],
    /// How a value reads.
    pub(super) form: &'a dyn Fn(f64) -> String,
    /// The colour's class.
    pub(super) class: &'a str,
}

impl Plot<'_> {
    /// A figure with the last and the largest value, and the line.
    pub(super) fn html(&self) -> String {
        let Self { title, points, form, class } = self;
        let known = || points.iter().filter_map(|(_, value)| *value);
        let last = points.last().and_then(|(_, value)| *value).map_or("not known".into(), form);
        let most = known().fold(0.0, f64::max);
        let top = nice(most);
        let oldest = points.first().map_or(0.0, |(ago, _)| *ago);
        let reach = REACHES.iter().find(|(reach, _)| oldest <= *reach).or(REACHES.last());
        let (reach, reach_name) = reach.copied().unwrap_or((3600.0, "1 h"));
        let mut html = format!(
            "<figure class=\"plot {class}\"><figcaption><span>{title}</span><b>{last}</b></figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{title}: {last}\">"
        );
        for part in [0.0, 0.5, 1.0] {
            let y = HEIGHT * part;
            let _ = write!(html, "<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>");
        }
        let place = |ago: f64, value: f64| (WIDTH * (1.0 - ago / reach), HEIGHT * (1.0 - value / top));
        for run in runs(points) {
            let mut line = String::new();
            for (number, (ago, value)) in run.iter().enumerate() {
                let (x, y) = place(*ago, *value);
                let _ = write!(line, "{}{x:.1} {y:.1}", if number == 0 { "M" } else { "L" });
            }
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            let ((left, _), (right, _)) = (place(*first, 0.0), place(*last, 0.0));
            let _ = write!(
                html,
                "<path class=\"area\" d=\"{line}L{right:.1} {HEIGHT}L{left:.1} {HEIGHT}Z\"/>\
                 <path class=\"line\" d=\"{line}\"/>"
            );
        }
        let (top, half) = (form(top), form(top / 2.0));
        let _ = write!(
            html,
            "</svg><span class=\"top\">{top}</span><span class=\"half\">{half}</span>\
             <div class=\"axis\"><span>{reach_name} ago</span><span>most {most}</span><span>now</span></div></figure>",
            most = form(most),
        );
        html
    }
}

/// The stretches of which everything is known.
fn runs(points: &[Point]) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    for (ago, value) in points {
        match (value, runs.last_mut()) {
            (Some(value), Some(run)) => run.push((*ago, *value)),
            (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
            _ => {}
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// The next of 1, 2, 5, 10, ... that is not below.
fn nice(most: f64) -> f64 {
    if most <= 1.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| *step >= most).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[Point]) -> String {
        Plot { title: "Rate", points, form: &|value| format!("{value}/s"), class: "rate" }.html()
    }

    #[test]
    fn a_line_goes_from_left_to_right_and_leaves_gaps() {
        let html = plot(&[
            (120.0, Some(0.0)),
            (90.0, Some(5.0)),
            (60.0, None),
            (30.0, Some(10.0)),
            (0.0, Some(2.5)),
        ]);
        assert!(html.contains("class=\"line\" d=\"M0.0 120.0L150.0 60.0\""), "{html}");
        assert!(html.contains("class=\"line\" d=\"M450.0 0.0L600.0 90.0\""), "{html}");
        assert_eq!(html.matches("class=\"line\"").count(), 2);
        for text in ["<b>2.5/s</b>", "2 min ago", "most 10/s", "class=\"half\">5/s<"] {
            assert!(html.contains(text), "{text} in {html}");
        }
    }

    #[test]
    fn nothing_and_one_value_can_be_plotted() {
        let html = plot(&[]);
        assert!(html.contains("not known") && !html.contains("<path"), "{html}");
        assert!(plot(&[(0.0, Some(0.0))]).contains("M600.0 120.0"));
        let long = plot(&[(3599.0, Some(1.0)), (0.0, None)]);
        assert!(long.contains("1 h ago") && long.contains("not known"), "{long}");
    }

    #[test]
    fn the_top_is_a_round_number() {
        for (most, top) in
            [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (1.5, 2.0), (42.0, 50.0), (51.0, 100.0), (2300.0, 5000.0)]
        {
            assert!((nice(most) - top).abs() < 1e-9, "{most}: {}", nice(most));
        }
    }
}
