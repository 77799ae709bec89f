//! Operations used only by the console, one row each. All its other requests are in
//! [`super::agents`] and [`super::conversations`].

use super::operation::{Auth, Operation, SERVER, op};

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(SERVER, "get", "/console", "The console", &[(200, "html", "A page")]).auth(Auth::Public),
    op(
        SERVER,
        "post",
        "/console/session",
        "Log in to the console; the cookie is valid for requests with the header x-csrf-token",
        &[(200, "Session", "Logged in"), (401, "Error", "The key is not valid")],
    )
    .json_body("SessionBody")
    .auth(Auth::Public),
    op(
        SERVER,
        "get",
        "/console/session",
        "Read the session of the cookie, and the token for x-csrf-token",
        &[(200, "Session", "Logged in"), (204, "", "Not logged in")],
    )
    .auth(Auth::Public),
    op(SERVER, "delete", "/console/session", "Log out of the console", &[(204, "", "Logged out")])
        .auth(Auth::Public),
];
