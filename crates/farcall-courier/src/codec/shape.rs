//! The compact form of a type, which the transcoder follows.

/// The place of a [`Node`] in the table of its layout. Nodes refer to each other by place, so that a type can
/// contain itself.
pub(super) type Place = u32;

/// A type in the table of a layout.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    /// The fewest words that a value has. It is 0 only if no value has any words.
    pub(super) least_words: usize,
}

/// What the values of a type consist of.
#[derive(Debug)]
pub(super) enum Shape {
    /// BOOLEAN.
    Boolean,
    /// CARDINAL or UNSPECIFIED.
    Cardinal,
    /// INTEGER.
    Integer,
    /// LONG CARDINAL, LONG INTEGER or LONG UNSPECIFIED. Its two words are the bytes of an XDR integer.
    Long,
    /// STRING of at most so many bytes.
    String { max: usize },
    /// ARRAY.
    Array { count: usize, element: Place },
    /// SEQUENCE of at most so many elements.
    Sequence { max: usize, element: Place },
    /// RECORD.
    Record(Box<[Field]>),
    /// CHOICE, or an enumeration, which is a CHOICE of empty records.
    Choice(Choice),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) at: Place,
}

/// The arms of a CHOICE.
#[derive(Debug)]
pub(super) struct Choice {
    /// The arms in the order of their designators.
    arms: Box<[Arm]>,
}

/// An arm of a CHOICE.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) designator: u16,
    pub(super) name: Box<str>,
    /// The record that follows the designator.
    pub(super) fields: Place,
}

impl Choice {
    pub(super) fn new(mut arms: Vec<Arm>) -> Choice {
        arms.sort_by_key(|arm| arm.designator);
        Choice { arms: arms.into() }
    }

    /// Returns the arm of a designator. Costs no search if the designators count up from the first one.
    #[inline]
    pub(super) fn arm(&self, designator: u16) -> Option<&Arm> {
        let place = usize::from(designator.checked_sub(self.arms.first()?.designator)?);
        if let Some(arm) = self.arms.get(place)
            && arm.designator == designator
        {
            return Some(arm);
        }
        let place = self.arms.binary_search_by_key(&designator, |arm| arm.designator).ok()?;
        self.arms.get(place)
    }
}

impl Shape {
    /// Returns the fewest words of a value, given those of the types that every value contains.
    pub(super) fn least_words(&self, of: impl Fn(Place) -> usize) -> usize {
        match self {
            Shape::Boolean | Shape::Cardinal | Shape::Integer => 1,
            Shape::String { .. } | Shape::Sequence { .. } | Shape::Choice(_) => 1,
            Shape::Long => 2,
            Shape::Array { count, element } => count.saturating_mul(of(*element)),
            Shape::Record(fields) => {
                fields.iter().fold(0, |sum: usize, field| sum.saturating_add(of(field.at)))
            }
        }
    }
}
