//! Pictures of graphs in SVG, for light and for dark surroundings.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

use super::{COLUMN, NODE_HEIGHT, NODE_WIDTH, PLACE_RADIUS, ROW, arrange};
use crate::model::{Graph, InputKind, Node, Place, PlaceId, Position};
use crate::xml::Escaped;

/// The space around the graph, in pixels.
const MARGIN: i64 = 40;

/// The most characters of a text in a node, and of a text elsewhere.
const MAX_IN_NODE: usize = 18;
const MAX_OUTSIDE: usize = 24;

/// The most tokens that are drawn as dots. More are a number.
const MAX_DOTS: usize = 5;

const STYLE: &str = "
  :root { color-scheme: light dark; --ground: #fff; --ink: #1c2230; --quiet: #5c6577; --line: #566078;
    --arc: #8a93a6; --node: #eef2fa; --bad: #c0312b; }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #1a1e27; --ink: #e4e8f0; --quiet: #9aa4b8; --line: #8c97ae; --arc: #6b758b;
      --node: #232a39; --bad: #f08a82; }
  }
  text { font: 12px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; text-anchor: middle; fill: var(--ink); }
  .ground { fill: var(--ground); }
  .place circle { fill: var(--ground); stroke: var(--line); stroke-width: 1.5; }
  .place .token { fill: var(--ink); stroke: none; }
  .place .count { font-weight: 600; }
  .node rect { fill: var(--node); stroke: var(--line); stroke-width: 1.5; }
  .node .name { font-weight: 600; }
  .quiet { fill: var(--quiet); font-size: 11px; }
  .arc path { fill: none; stroke: var(--arc); stroke-width: 1.5; }
  .arc text { fill: var(--quiet); font-size: 11px; paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
  .read path { stroke-dasharray: 5 4; }
  .exception path { stroke: var(--bad); }
  .exception text { fill: var(--bad); }
  .head { fill: var(--arc); }
  .bad-head { fill: var(--bad); }
  .ring { fill: var(--ground); stroke: var(--arc); stroke-width: 1.5; }
";

const MARKERS: &str = "<defs>
<marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker>
<marker id=\"bad-head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"bad-head\" d=\"M0 0L8 4L0 8z\"/></marker>
<marker id=\"ring\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"10\" markerHeight=\"10\" \
markerUnits=\"userSpaceOnUse\"><circle class=\"ring\" cx=\"5\" cy=\"5\" r=\"4\"/></marker>
</defs>
";

/// Returns a picture of the graph, in which each place has the number of tokens that `tokens` says, or those
/// that it has at the beginning.
///
/// What has no position gets one by [`arrange`]. Texts of the graph are only text in the picture.
///
/// ```
/// use farcall_olympus::model::{Graph, Place};
///
/// let place = Place { name: "in & out".into(), ..Place::default() };
/// let graph = Graph { places: vec![place], ..Graph::default() };
/// let picture = farcall_olympus::draw::svg(&graph, Some(&[12]));
/// assert!(picture.contains(">in &amp; out</text>") && picture.contains(">12</text>"));
/// ```
pub fn svg(graph: &Graph, tokens: Option<&[usize]>) -> String {
    let mut arranged = Cow::Borrowed(graph);
    let is_missing = |at: &Option<Position>| at.is_none();
    if graph.places.iter().any(|place| is_missing(&place.at))
        || graph.nodes.iter().any(|node| is_missing(&node.at))
    {
        arrange(arranged.to_mut());
    }
    let mut out = String::new();
    // A write to a string does not fail.
    let _ = picture(&mut out, &arranged, tokens);
    out
}

fn picture(out: &mut String, graph: &Graph, tokens: Option<&[usize]>) -> fmt::Result {
    let (left, top, right, bottom) = bounds(graph);
    let (width, height) = (right - left, bottom - top);
    write!(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" ")?;
    writeln!(out, "viewBox=\"{left} {top} {width} {height}\" role=\"img\">")?;
    writeln!(out, "<title>{}</title>\n<style>{STYLE}</style>", Escaped(&graph.name))?;
    out.push_str(MARKERS);
    writeln!(out, "<rect class=\"ground\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>")?;
    // The texts of arcs are drawn last, so that nothing hides them.
    let mut texts = String::new();
    arcs(out, &mut texts, graph)?;
    for (at, place) in graph.places.iter().enumerate() {
        let tokens = tokens.and_then(|tokens| tokens.get(at).copied()).unwrap_or(place.tokens.len());
        self::place(out, place, tokens)?;
    }
    for node in &graph.nodes {
        self::node(out, node)?;
    }
    out.push_str(&texts);
    out.write_str("</svg>\n")
}

/// Returns the left, top, right and bottom edge of the picture.
fn bounds(graph: &Graph) -> (i64, i64, i64, i64) {
    let positions = graph.places.iter().map(|place| place.at).chain(graph.nodes.iter().map(|node| node.at));
    let mut edges: Option<(i64, i64, i64, i64)> = None;
    for Position { x, y } in positions.flatten() {
        let (x, y) = (i64::from(x), i64::from(y));
        let (left, top, right, bottom) = edges.unwrap_or((x, y, x, y));
        edges = Some((left.min(x), top.min(y), right.max(x), bottom.max(y)));
    }
    let (left, top, right, bottom) = edges.unwrap_or_default();
    let (beside, below) = (i64::from(NODE_WIDTH / 2) + MARGIN, i64::from(NODE_HEIGHT / 2) + MARGIN);
    (left - beside, top - below, right + beside, bottom + below)
}

fn place(out: &mut String, place: &Place, tokens: usize) -> fmt::Result {
    let Position { x, y } = place.at.unwrap_or_default();
    write!(out, "<g class=\"place\" transform=\"translate({x} {y})\"><title>{}", Escaped(&place.name))?;
    if let Some(of) = &place.of {
        write!(out, ": {}", Escaped(of))?;
    }
    if let Some(capacity) = place.capacity {
        write!(out, ", capacity {capacity}")?;
    }
    write!(out, "</title><circle r=\"{PLACE_RADIUS}\"/>")?;
    match tokens {
        0 => {}
        1..=MAX_DOTS => {
            for at in 0..tokens {
                let turn = std::f64::consts::TAU * at as f64 / tokens as f64;
                let radius = if tokens == 1 { 0.0 } else { 9.0 };
                let (x, y) = (radius * turn.sin(), -radius * turn.cos());
                write!(out, "<circle class=\"token\" r=\"4.5\" cx=\"{x:.1}\" cy=\"{y:.1}\"/>")?;
            }
        }
        more => write!(out, "<text class=\"count\" y=\"4\">{more}</text>")?,
    }
    let shown = if place.label.is_empty() { &place.name } else { &place.label };
    let below = PLACE_RADIUS + 14;
    writeln!(out, "<text y=\"{below}\">{}</text></g>", Escaped(&short(shown, MAX_OUTSIDE)))
}

fn node(out: &mut String, node: &Node) -> fmt::Result {
    let Position { x, y } = node.at.unwrap_or_default();
    write!(out, "<g class=\"node\" transform=\"translate({x} {y})\"><title>{}", Escaped(&node.name))?;
    if let Some(call) = &node.call {
        write!(out, ": {} {}", Escaped(&call.server), Escaped(&call.name))?;
    }
    if let Some(guard) = &node.guard {
        write!(out, ", if {}", Escaped(&guard.to_string()))?;
    }
    let (left, top) = (-NODE_WIDTH / 2, -NODE_HEIGHT / 2);
    write!(
        out,
        "</title><rect x=\"{left}\" y=\"{top}\" width=\"{NODE_WIDTH}\" height=\"{NODE_HEIGHT}\" rx=\"6\"/>"
    )?;
    let shown = short(if node.label.is_empty() { &node.name } else { &node.label }, MAX_IN_NODE);
    match &node.call {
        None => writeln!(out, "<text class=\"name\" y=\"4\">{}</text></g>", Escaped(&shown)),
        Some(call) => {
            let procedure = short(&format!("{}.{}", call.server, call.name), MAX_IN_NODE + 2);
            let (name, quiet) = (Escaped(&shown), Escaped(&procedure));
            writeln!(
                out,
                "<text class=\"name\" y=\"-4\">{name}</text><text class=\"quiet\" y=\"13\">{quiet}</text></g>"
            )
        }
    }
}

/// An end of an arc: a place is round, a node is not.
#[derive(Clone, Copy)]
struct End {
    x: f64,
    y: f64,
    is_place: bool,
}

fn arcs(out: &mut String, texts: &mut String, graph: &Graph) -> fmt::Result {
    // How many arcs between a place and a node were drawn: each further one bends more.
    let mut drawn: HashMap<(u32, usize), i32> = HashMap::new();
    let end = |place: PlaceId| {
        let at = graph.places.get(place.0 as usize)?.at.unwrap_or_default();
        Some(End { x: at.x.into(), y: at.y.into(), is_place: true })
    };
    for (at, node) in graph.nodes.iter().enumerate() {
        let Position { x, y } = node.at.unwrap_or_default();
        let middle = End { x: x.into(), y: y.into(), is_place: false };
        let mut bend = |place: PlaceId| {
            let count = drawn.entry((place.0, at)).or_default();
            *count += 1;
            *count - 1
        };
        for input in &node.inputs {
            let Some(place) = end(input.place) else { continue };
            let (class, head) = match input.kind {
                InputKind::Take => ("arc", "head"),
                InputKind::Read => ("arc read", "head"),
                InputKind::Inhibit => ("arc inhibit", "ring"),
            };
            let words = [weight(input.weight), String::new(), String::new()];
            arc((out, texts), (class, head), (place, middle), bend(input.place), words)?;
        }
        for output in &node.outputs {
            let Some(place) = end(output.place) else { continue };
            let style =
                if output.exception.is_some() { ("arc exception", "bad-head") } else { ("arc", "head") };
            let on = output.exception.as_ref().map(|name| format!("on {name}")).unwrap_or_default();
            let condition = output.condition.as_ref().map(|condition| format!("if {condition}"));
            let words = [weight(output.weight), on, condition.unwrap_or_default()];
            arc((out, texts), style, (middle, place), bend(output.place), words)?;
        }
    }
    Ok(())
}

fn weight(weight: u32) -> String {
    if weight == 1 { String::new() } else { format!("×{weight}") }
}

fn arc(
    (out, texts): (&mut String, &mut String),
    (class, head): (&str, &str),
    (from, to): (End, End),
    others: i32,
    words: [String; 3],
) -> fmt::Result {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy).max(1.0);
    // A long arc along a row of items leads around them; so does one of several between the same ends.
    let is_long = dx.abs() > 1.5 * f64::from(COLUMN) && dy.abs() < 0.75 * f64::from(ROW);
    let bend = f64::from(others) * 36.0 + if is_long { 120.0 } else { 0.0 };
    let via = ((from.x + to.x) / 2.0 - dy / length * bend, (from.y + to.y) / 2.0 + dx / length * bend);
    let (start, end) = (border(from, via), border(to, via));
    let (via_x, via_y) = via;
    write!(out, "<g class=\"{class}\"><path d=\"M{:.1} {:.1}Q{via_x:.1} {via_y:.1} ", start.0, start.1)?;
    write!(out, "{:.1} {:.1}\" marker-end=\"url(#{head})\"/>", end.0, end.1)?;
    let words = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if !words.is_empty() {
        let (x, y) = ((start.0 + end.0 + 2.0 * via_x) / 4.0, (start.1 + end.1 + 2.0 * via_y) / 4.0 - 5.0);
        let words = short(&words, MAX_OUTSIDE);
        writeln!(
            texts,
            "<g class=\"{class}\"><text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>",
            Escaped(&words)
        )?;
    }
    out.write_str("</g>\n")
}

/// Returns the point of an item's border that is towards `via`.
fn border(of: End, via: (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (via.0 - of.x, via.1 - of.y);
    let length = dx.hypot(dy);
    if length < 1.0 {
        return (of.x, of.y);
    }
    let part = match of.is_place {
        true => f64::from(PLACE_RADIUS + 1) / length,
        false => {
            let (wide, high) = (f64::from(NODE_WIDTH / 2 + 1), f64::from(NODE_HEIGHT / 2 + 1));
            (wide / dx.abs()).min(high / dy.abs())
        }
    };
    (of.x + dx * part, of.y + dy * part)
}

/// Returns the text on one line, with at most so many characters.
fn short(text: &str, most: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(most + 1).collect();
    match text.char_indices().nth(most) {
        None => text,
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}
