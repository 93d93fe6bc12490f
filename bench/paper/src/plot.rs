//! Pictures in the report: SVG whose colours follow the page's, light or dark.

use anyhow::Result;
use farcall_bench_method::chart::{Bars, Panel, bars_as_svg, curves_as_svg};

/// The colours that pictures are drawn with, and the page's names for them.
const COLOURS: [(&str, &str); 2] = [("#FFFFFF", "var(--ground)"), ("#000000", "var(--ink)")];

/// Returns curves as SVG.
pub fn curves(axes: &(String, String), panel: &Panel) -> Result<String> {
    Ok(themed(curves_as_svg((&axes.0, &axes.1), panel)?, &panel.caption))
}

/// Returns bars as SVG.
pub fn bars(panel: &Bars) -> Result<String> {
    Ok(themed(bars_as_svg(panel)?, &panel.caption))
}

/// Returns a picture that takes its colours from the page, grows and shrinks with it, and has a name for
/// those who cannot see it.
fn themed(svg: String, name: &str) -> String {
    let mut svg = svg;
    for (drawn, page) in COLOURS {
        svg = svg.replace(drawn, page);
    }
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{name}\" "), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_bench_method::chart::Curve;

    #[test]
    fn pictures_have_the_colours_of_the_page() {
        let curve = Curve { name: "now".into(), points: vec![(1.0, 1.0), (2.0, 3.0)], thin: false };
        let panel = Panel { caption: "A \"picture\"".into(), curves: vec![curve] };
        let svg = curves(&("members".into(), "r/m".into()), &panel).unwrap();
        assert!(svg.contains("var(--ground)") && svg.contains("var(--ink)"));
        assert!(svg.contains("aria-label=\"A &quot;picture&quot;\""));
        assert!(!svg.contains("#FFFFFF") && !svg.contains("#000000"));
    }
}
