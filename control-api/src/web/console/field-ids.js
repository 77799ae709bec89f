// The ids of a form field's elements.

export const inputId = (field) => `f-${field.path.replace(/[^a-z0-9]+/gi, "-")}`;
export const describedBy = (field) => `${inputId(field)}-hint ${inputId(field)}-fault`;
