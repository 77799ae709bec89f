//! Sliders: numbers with a name, a unit and a range.

/// An adjustable number of a `T`.
pub struct Slider<T> {
    /// Name, as in a file: `eyes.size`.
    pub name: &'static str,
    /// Unit: `factor` (relative to an average adult), `share` (0 none … 1 all; some exceed 1),
    /// `slope` (rise per unit of width), `radians`, or `steps` of a pose (1 = the full range).
    pub unit: &'static str,
    /// Minimum.
    pub min: f32,
    /// Maximum.
    pub max: f32,
    /// Accessor of the field.
    pub field: fn(&mut T) -> &mut f32,
}

/// A slider's value is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be from {min} to {max}")]
pub struct OutOfRange {
    /// Name of the slider.
    pub name: &'static str,
    /// The rejected value.
    pub value: f32,
    /// Minimum.
    pub min: f32,
    /// Maximum.
    pub max: f32,
}

/// Checks that all sliders of `target` are in range; returns the first that is not.
pub(crate) fn check<T: Clone>(sliders: &[Slider<T>], target: &T) -> Result<(), OutOfRange> {
    let mut target = target.clone();
    for &Slider { name, min, max, field, .. } in sliders {
        let value = *field(&mut target);
        if !(min..=max).contains(&value) {
            return Err(OutOfRange { name, value, min, max });
        }
    }
    Ok(())
}

/// A list of sliders: `Type; "unit" min ..= max: field.path; …`.
macro_rules! sliders {
    ($of:ty; $($unit:literal $min:literal ..= $max:literal: $($name:ident).+;)*) => {
        &[$($crate::slider::Slider::<$of> {
            name: sliders!(@name $($name).+),
            unit: $unit,
            min: $min,
            max: $max,
            field: |all| &mut all.$($name).+,
        }),*]
    };
    (@name $only:ident) => { stringify!($only) };
    (@name $table:ident . $name:ident) => { concat!(stringify!($table), ".", stringify!($name)) };
}
pub(crate) use sliders;

/// Implements `Serialize` and `Deserialize` for a type that was derived with `remote = "Self"`, and
/// rejects values out of range.
macro_rules! validated_serde {
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
pub(crate) use validated_serde;
