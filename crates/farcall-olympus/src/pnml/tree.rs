//! The elements of an XML document, with bounds and with the place of each in the text.

use std::borrow::Cow;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use farcall_base::work;

use super::{Error, MAX_DEPTH, MAX_ELEMENTS};

/// The attributes that a PNML reader needs. Others are not kept.
const ATTRIBUTES: [&str; 11] =
    ["form", "id", "ref", "source", "target", "tool", "type", "value", "version", "x", "y"];

/// The elements of a document.
#[derive(Debug)]
pub struct Tree<'t> {
    text: &'t str,
    elements: Vec<Element<'t>>,
}

/// The index of an element.
pub type Id = u32;

#[derive(Debug)]
struct Element<'t> {
    /// The name without its namespace prefix.
    name: &'t str,
    /// The byte of the document at which the element begins.
    at: usize,
    attributes: Vec<(&'t str, Cow<'t, str>)>,
    /// The text in the element itself.
    text: String,
    /// The first and the last child, and the next child of the parent.
    first: Option<Id>,
    last: Option<Id>,
    next: Option<Id>,
}

impl<'t> Tree<'t> {
    /// Parses a document.
    pub fn parse(text: &'t str) -> Result<Tree<'t>, Error> {
        let mut tree = Tree { text, elements: Vec::new() };
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_end_names = true;
        // The elements that have begun and not ended.
        let mut open: Vec<Id> = Vec::new();
        loop {
            let at = reader.buffer_position() as usize;
            let event = reader.read_event().map_err(|why| {
                Error::new(text, reader.error_position() as usize, format!("this is no XML: {why}"))
            })?;
            match event {
                Event::Start(start) => {
                    if open.len() >= MAX_DEPTH {
                        let why = format!("more than {MAX_DEPTH} elements contain one another");
                        return Err(Error::new(text, at, why));
                    }
                    let element = tree.add(at, &start, open.last().copied())?;
                    open.push(element);
                }
                Event::Empty(start) => {
                    tree.add(at, &start, open.last().copied())?;
                }
                Event::End(_) => {
                    open.pop();
                }
                Event::Text(more) => tree.append(&open, &more.xml10_content()),
                Event::CData(more) => tree.append(&open, &more.xml10_content()),
                Event::GeneralRef(reference) => {
                    let character = match reference.resolve_char_ref() {
                        Ok(Some(character)) => Some(character),
                        Ok(None) => predefined(&reference.xml10_content()),
                        Err(_) => None,
                    };
                    let unknown = || Error::new(text, at, "this reference stands for nothing");
                    tree.append(&open, character.ok_or_else(unknown)?.encode_utf8(&mut [0; 4]));
                }
                Event::DocType(_) => {
                    return Err(Error::new(text, at, "document type definitions are not read"));
                }
                Event::Eof => break,
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            }
        }
        match open.last() {
            Some(open) => Err(tree.error(*open, "this element does not end")),
            None => Ok(tree),
        }
    }

    fn add(&mut self, at: usize, start: &BytesStart<'t>, parent: Option<Id>) -> Result<Id, Error> {
        let text = self.text;
        if self.elements.len() >= MAX_ELEMENTS {
            return Err(Error::new(text, at, format!("the document has more than {MAX_ELEMENTS} elements")));
        }
        if parent.is_none() && !self.elements.is_empty() {
            return Err(Error::new(text, at, "the document has a second root element"));
        }
        // The names are read from the document, because those of `start` live shorter.
        let name = start.local_name().as_ref().len();
        let name_end = at + 1 + start.name().as_ref().len();
        let name = text.get(name_end - name..name_end).unwrap_or_default();
        let mut attributes: Vec<(&'static str, Cow<'t, str>)> = Vec::new();
        work::step();
        for attribute in start.attributes().with_checks(false) {
            work::step();
            let attribute = attribute.map_err(|why| Error::new(text, at, format!("an attribute: {why}")))?;
            let key = attribute.key.as_ref();
            let Some(known) = ATTRIBUTES.iter().find(|known| **known == key) else { continue };
            if attributes.iter().any(|(other, _)| other == known) {
                return Err(Error::new(text, at, format!("the attribute {known} is there twice")));
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|why| Error::new(text, at, format!("the attribute {known}: {why}")))?;
            attributes.push((known, Cow::Owned(value.into_owned())));
        }
        let id = self.elements.len() as Id;
        let text = String::new();
        self.elements.push(Element { name, at, attributes, text, first: None, last: None, next: None });
        if let Some(parent) = parent {
            match self.elements[parent as usize].last.replace(id) {
                Some(before) => self.elements[before as usize].next = Some(id),
                None => self.elements[parent as usize].first = Some(id),
            }
        }
        Ok(id)
    }

    fn append(&mut self, open: &[Id], more: &str) {
        work::steps(1 + more.len() / 16);
        if let Some(element) = open.last() {
            self.elements[*element as usize].text.push_str(more);
        }
    }

    /// Returns the element that contains all others.
    pub fn root(&self) -> Option<Id> {
        (!self.elements.is_empty()).then_some(0)
    }

    /// Returns the element's name, without a namespace.
    pub fn name(&self, element: Id) -> &'t str {
        self.elements[element as usize].name
    }

    /// Returns the element's own text.
    pub fn text(&self, element: Id) -> &str {
        &self.elements[element as usize].text
    }

    /// Returns the value of an attribute.
    pub fn attribute(&self, element: Id, name: &str) -> Option<&str> {
        let attributes = &self.elements[element as usize].attributes;
        attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_ref())
    }

    /// Returns the elements that are directly in this one.
    pub fn children(&self, element: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(self.elements[element as usize].first, |child| {
            work::step();
            self.elements[*child as usize].next
        })
    }

    /// Returns the first child of this name.
    pub fn child(&self, element: Id, name: &str) -> Option<Id> {
        self.children(element).find(|child| self.name(*child) == name)
    }

    /// Returns an error about an element.
    pub fn error(&self, element: Id, what: impl Into<String>) -> Error {
        Error::new(self.text, self.elements[element as usize].at, what)
    }
}

/// Returns the character that one of XML's own references stands for.
fn predefined(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "apos" => '\'',
        "quot" => '"',
        _ => return None,
    })
}
