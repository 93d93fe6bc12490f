//! Reads a place/transition net, of this program or of another, as a graph.

mod names;
mod net;

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use farcall_base::room;
use serde_json::Value;

use super::tree::{Id, Tree};
use super::{Error, MAX_BYTES, MAX_TOKENS, TOOL, VERSION};
use crate::expression::Expression;
use crate::model::{Graph, InputKind, Join, Place, Position, Procedure, Split};

/// Reads a PNML document that has one place/transition net.
///
/// The document is in UTF-8 or, if it says so, in ISO 8859-1. Fails if it is no such document, or larger than
/// the bounds of this module.
///
/// ```
/// let document = br#"<pnml xmlns="http://www.pnml.org/version-2009/grammar/pnml">
///   <net id="n" type="http://www.pnml.org/version-2009/grammar/ptnet"><page id="g">
///     <place id="p1"><name><text>ready</text></name><initialMarking><text>2</text></initialMarking></place>
///     <transition id="t1"/>
///     <arc id="a1" source="p1" target="t1"/>
///   </page></net>
/// </pnml>"#;
/// let graph = farcall_olympus::pnml::read(document).unwrap();
/// assert_eq!((graph.places[0].name.as_str(), graph.places[0].tokens.len()), ("ready", 2));
/// ```
pub fn read(document: &[u8]) -> Result<Graph, Error> {
    if document.len() > MAX_BYTES {
        return Err(Error::new("", 0, format!("the document has more than {MAX_BYTES} bytes")));
    }
    let text = decoded(document)?;
    let tree = Tree::parse(&text)?;
    let net = net_of(&tree)?;
    net::Reading::new(&tree, net)?.graph()
}

/// Returns the document as text.
fn decoded(document: &[u8]) -> Result<Cow<'_, str>, Error> {
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    let why = match std::str::from_utf8(document) {
        Ok(text) => return Ok(text.into()),
        Err(why) => why,
    };
    let start = String::from_utf8_lossy(&document[..document.len().min(100)]).to_lowercase();
    if start.contains("iso-8859-1") {
        return Ok(document.iter().map(|byte| char::from(*byte)).collect::<String>().into());
    }
    let before = String::from_utf8_lossy(&document[..why.valid_up_to()]);
    Err(Error::new(&before, before.len(), "the document is not UTF-8"))
}

/// Returns the only net of the document.
fn net_of(tree: &Tree) -> Result<Id, Error> {
    let root = tree.root().ok_or_else(|| Error::new("", 0, "the document has no element"))?;
    if tree.name(root) != "pnml" {
        return Err(tree.error(root, format!("this is <{}>, not <pnml>", tree.name(root))));
    }
    let mut nets = tree.children(root).filter(|child| tree.name(*child) == "net");
    let net = nets.next().ok_or_else(|| tree.error(root, "the document has no net"))?;
    if let Some(second) = nets.next() {
        return Err(tree.error(second, "the document has a second net, and a graph is one net"));
    }
    let of = tree.attribute(net, "type").unwrap_or_default().to_lowercase();
    let coloured = ["symmetricnet", "highlevelnet", "hlpng", "hlcorestructure"];
    if coloured.iter().any(|kind| of.contains(kind)) {
        return Err(tree.error(net, "only place/transition nets are read, and this is a high-level net"));
    }
    Ok(net)
}

/// Returns what this program wrote about an element besides the standard's elements.
fn own(tree: &Tree, of: Id) -> Result<Option<Id>, Error> {
    let is_own =
        |child: &Id| tree.name(*child) == "toolspecific" && tree.attribute(*child, "tool") == Some(TOOL);
    let Some(own) = tree.children(of).find(is_own) else { return Ok(None) };
    match tree.attribute(own, "version") {
        Some(VERSION) => Ok(Some(own)),
        other => {
            let version = other.unwrap_or("none");
            Err(tree.error(own, format!("the version is {version}, and this program knows {VERSION}")))
        }
    }
}

/// Returns the text of one of this program's own elements: of the child `name` of `own`.
fn own_text(tree: &Tree, own: Option<Id>, name: &str) -> Result<Option<String>, Error> {
    let Some(element) = own.and_then(|own| tree.child(own, name)) else { return Ok(None) };
    text(tree, element).map(Some)
}

/// Returns the text of one of this program's own elements.
fn text(tree: &Tree, element: Id) -> Result<String, Error> {
    let text = tree.text(element).trim();
    match tree.attribute(element, "form") {
        None => Ok(text.to_owned()),
        Some("json") => serde_json::from_str(text)
            .map_err(|why| tree.error(element, format!("this is no string of JSON: {why}"))),
        Some(other) => Err(tree.error(element, format!("the form {other:?} is not known"))),
    }
}

/// Returns what one of this program's own elements says, parsed.
fn own_value<T: FromStr>(tree: &Tree, own: Option<Id>, name: &str) -> Result<Option<T>, Error>
where
    T::Err: std::fmt::Display,
{
    let Some(element) = own.and_then(|own| tree.child(own, name)) else { return Ok(None) };
    let wrong = |why: T::Err| tree.error(element, format!("the {name}: {why}"));
    text(tree, element)?.parse().map(Some).map_err(wrong)
}

fn own_expression(tree: &Tree, own: Option<Id>, name: &str) -> Result<Option<Expression>, Error> {
    own_value(tree, own, name)
}

/// Returns the text of a label: of its element `text`, or of `value`, as older tools write it.
fn label<'t>(tree: &'t Tree, of: Id, name: &str) -> Option<(Id, &'t str)> {
    let label = tree.child(of, name)?;
    let inner = tree.child(label, "text").or_else(|| tree.child(label, "value")).unwrap_or(label);
    Some((label, tree.text(inner).trim()))
}

/// Returns the number of a label, or `None` if there is none.
fn number(tree: &Tree, of: Id, name: &str) -> Result<Option<u32>, Error> {
    let Some((label, text)) = label(tree, of, name) else { return Ok(None) };
    // PIPE writes "Default,3" for three tokens of its only colour.
    let digits = text.strip_prefix("Default,").unwrap_or(text);
    if digits.is_empty() {
        return Ok(None);
    }
    let wrong = |_| tree.error(label, format!("{text:?} is not a number of at most {}", u32::MAX));
    digits.parse().map(Some).map_err(wrong)
}

fn position(tree: &Tree, of: Id) -> Result<Option<Position>, Error> {
    let Some(element) = tree.child(of, "graphics").and_then(|graphics| tree.child(graphics, "position"))
    else {
        return Ok(None);
    };
    let coordinate = |name: &str| {
        let text = tree.attribute(element, name).unwrap_or("0");
        match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number.round() as i32),
            _ => Err(tree.error(element, format!("{name} is {text:?}, which is not a number"))),
        }
    };
    Ok(Some(Position { x: coordinate("x")?, y: coordinate("y")? }))
}

/// Reads a place, except its name. `tokens_left` is how many tokens it may have.
fn place(tree: &Tree, element: Id, tokens_left: &mut usize) -> Result<Place, Error> {
    if let Some(coloured) = tree.child(element, "hlinitialMarking") {
        return Err(
            tree.error(coloured, "only place/transition nets are read, and these tokens have colours")
        );
    }
    let own = own(tree, element)?;
    let count = number(tree, element, "initialMarking")?.unwrap_or(0) as usize;
    let Some(left) = tokens_left.checked_sub(count) else {
        return Err(tree.error(element, format!("the places have more than {MAX_TOKENS} tokens")));
    };
    *tokens_left = left;
    let mut tokens = Vec::new();
    for child in own.iter().flat_map(|own| tree.children(*own)).filter(|child| tree.name(*child) == "token") {
        let wrong = |why| tree.error(child, format!("the token is no JSON: {why}"));
        tokens.push(serde_json::from_str(tree.text(child)).map_err(wrong)?);
    }
    // Another tool may have changed the marking. Then the values of the first tokens hold.
    let more = count.saturating_sub(tokens.len());
    room::reserve_exact(&mut tokens, more).map_err(|why| tree.error(element, why.to_string()))?;
    tokens.resize(count, Value::Null);
    let capacity = match own_value(tree, own, "capacity")? {
        Some(capacity) => Some(capacity),
        // PIPE writes 0 for a place without a capacity.
        None => number(tree, element, "capacity")?.filter(|capacity| *capacity > 0),
    };
    Ok(Place {
        of: own_text(tree, own, "type")?,
        capacity,
        tokens,
        at: position(tree, element)?,
        ..Place::default()
    })
}

fn join(tree: &Tree, own: Option<Id>) -> Result<Join, Error> {
    let Some(text) = own_text(tree, own, "join")? else { return Ok(Join::All) };
    serde_json::from_value(text.into()).map_err(|why| wrong(tree, own, "join", why))
}

fn split(tree: &Tree, own: Option<Id>) -> Result<Split, Error> {
    let Some(text) = own_text(tree, own, "split")? else { return Ok(Split::All) };
    serde_json::from_value(text.into()).map_err(|why| wrong(tree, own, "split", why))
}

fn wrong(tree: &Tree, own: Option<Id>, name: &str, why: impl std::fmt::Display) -> Error {
    let element = own.and_then(|own| tree.child(own, name)).unwrap_or_default();
    tree.error(element, format!("the {name}: {why}"))
}

/// Reads a duration: seconds, with up to nine digits after the point.
fn after(tree: &Tree, own: Option<Id>) -> Result<Option<Duration>, Error> {
    let Some(text) = own_text(tree, own, "after")? else { return Ok(None) };
    let (seconds, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let parsed = match (seconds.parse(), format!("{fraction:0<9}").parse()) {
        (Ok(seconds), Ok(nanoseconds)) if fraction.len() <= 9 && nanoseconds < 1_000_000_000 => {
            Some(Duration::new(seconds, nanoseconds))
        }
        _ => None,
    };
    let expected = "seconds are expected, with at most 9 digits after the point";
    parsed.map(Some).ok_or_else(|| wrong(tree, own, "after", expected))
}

fn procedure(tree: &Tree, own: Option<Id>) -> Result<Option<Procedure>, Error> {
    let Some(call) = own.and_then(|own| tree.child(own, "call")) else { return Ok(None) };
    let needed = |name: &str| {
        let text = own_text(tree, Some(call), name)?;
        text.ok_or_else(|| tree.error(call, format!("the call has no <{name}>")))
    };
    Ok(Some(Procedure {
        server: needed("server")?,
        definition: own_text(tree, Some(call), "definition")?,
        name: needed("name")?,
        arguments: own_expression(tree, Some(call), "arguments")?,
        idempotent: tree.child(call, "idempotent").is_some(),
    }))
}

/// Returns what an arc from a place does, as its type says.
fn kind(tree: &Tree, arc: Id) -> Result<InputKind, Error> {
    let Some(element) = tree.child(arc, "type").or_else(|| tree.child(arc, "arctype")) else {
        return Ok(InputKind::Take);
    };
    let inner = tree.child(element, "text").unwrap_or(element);
    let kind = tree.attribute(element, "value").unwrap_or_else(|| tree.text(inner).trim());
    match kind.to_lowercase().as_str() {
        "normal" | "" => Ok(InputKind::Take),
        "read" | "test" => Ok(InputKind::Read),
        "inhibitor" => Ok(InputKind::Inhibit),
        _ => Err(tree.error(element, format!("arcs of the type {kind:?} are not known"))),
    }
}
