//! Sliders: numbers with a name, a unit and a range.

/// A number of a `T` that may be set.
pub struct Slider<T> {
    /// Its name, as in a file: `eyes.size`.
    pub name: &'static str,
    /// What it counts: `factor` (of an average adult's measure), `share` (0 none … 1 all), `radians`, or `steps` of a pose (1 = as far as it
    /// goes).
    pub unit: &'static str,
    /// The least value.
    pub least: f32,
    /// The largest value.
    pub most: f32,
    /// Where it is.
    pub of: fn(&mut T) -> &mut f32,
}

/// A slider's value is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be from {least} to {most}")]
pub struct OutOfRange {
    /// Which one.
    pub name: &'static str,
    /// What it was set to.
    pub value: f32,
    /// The least that it may be.
    pub least: f32,
    /// The largest that it may be.
    pub most: f32,
}

/// Whether all sliders of `of` are in range; the first that is not is told.
pub(crate) fn check<T: Clone>(sliders: &[Slider<T>], of: &T) -> Result<(), OutOfRange> {
    let mut of = of.clone();
    for &Slider { name, least, most, of: field, .. } in sliders {
        let value = *field(&mut of);
        if !(least..=most).contains(&value) {
            return Err(OutOfRange { name, value, least, most });
        }
    }
    Ok(())
}

/// A list of sliders: `name: field, unit, least..most;`.
macro_rules! sliders {
    ($of:ty; $($unit:literal $least:literal ..= $most:literal: $($name:ident).+;)*) => {
        &[$($crate::slider::Slider::<$of> {
            name: sliders!(@name $($name).+),
            unit: $unit,
            least: $least,
            most: $most,
            of: |all| &mut all.$($name).+,
        }),*]
    };
    (@name $only:ident) => { stringify!($only) };
    (@name $table:ident . $name:ident) => { concat!(stringify!($table), ".", stringify!($name)) };
}
pub(crate) use sliders;

/// Reads and writes a type that was derived with `remote = "Self"`, and refuses what is out of range.
macro_rules! checked {
    ($of:ty) => {
        impl serde::Serialize for $of {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                <$of>::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $of {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let read = <$of>::deserialize(from)?;
                read.check().map_err(serde::de::Error::custom)?;
                Ok(read)
            }
        }
    };
}
pub(crate) use checked;
