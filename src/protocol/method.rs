//! The methods of the protocol: behind the parser a method is a [`Method`], not text.

use std::fmt;

macro_rules! methods {
    ($($variant:ident = $text:literal, $doc:literal;)+) => {
        /// A method name.
        ///
        /// ```
        /// assert_eq!(mcp_host::Method::parse("tools/call"), mcp_host::Method::ToolsCall);
        /// assert_eq!(mcp_host::Method::ToolsCall.as_str(), "tools/call");
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Method {
            $(#[doc = $doc] $variant,)+
            /// A method that this program has no rule for.
            Other(Box<str>),
        }

        impl Method {
            /// Reads a method name.
            #[must_use]
            pub fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }

            /// Returns the name as it is written on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }
    };
}

methods! {
    Initialize = "initialize", "Client request: begins a session.";
    Ping = "ping", "Request of either side: is the peer alive?";
    ToolsList = "tools/list", "Client request.";
    ToolsCall = "tools/call", "Client request.";
    ResourcesList = "resources/list", "Client request.";
    ResourceTemplatesList = "resources/templates/list", "Client request.";
    ResourcesRead = "resources/read", "Client request.";
    ResourcesSubscribe = "resources/subscribe", "Client request.";
    ResourcesUnsubscribe = "resources/unsubscribe", "Client request.";
    PromptsList = "prompts/list", "Client request.";
    PromptsGet = "prompts/get", "Client request.";
    Complete = "completion/complete", "Client request.";
    SetLevel = "logging/setLevel", "Client request.";
    RootsList = "roots/list", "Server request.";
    CreateMessage = "sampling/createMessage", "Server request.";
    Elicit = "elicitation/create", "Server request.";
    Initialized = "notifications/initialized", "Client notification: the handshake is done.";
    Cancelled = "notifications/cancelled", "Notification of either side: a request is withdrawn.";
    Progress = "notifications/progress", "Notification of either side: the progress of a request.";
    LogMessage = "notifications/message", "Server notification: a log line.";
    ResourceUpdated = "notifications/resources/updated", "Server notification: a watched resource changed.";
    ResourcesListChanged = "notifications/resources/list_changed", "Server notification.";
    ToolsListChanged = "notifications/tools/list_changed", "Server notification.";
    PromptsListChanged = "notifications/prompts/list_changed", "Server notification.";
    RootsListChanged = "notifications/roots/list_changed", "Client notification.";
    ElicitationComplete = "notifications/elicitation/complete", "Server notification: a URL elicitation ended.";
    Discover = "server/discover", "Client request (2026-07-28): what the server speaks and offers.";
    Listen = "subscriptions/listen", "Client request (2026-07-28): a stream of changes.";
    Acknowledged = "notifications/subscriptions/acknowledged", "Server notification (2026-07-28): a listen's grant.";
    TasksGet = "tasks/get", "Request: the status of a task.";
    TasksResult = "tasks/result", "Request (2025-11-25): the result of a task, once there is one.";
    TasksList = "tasks/list", "Request (2025-11-25).";
    TasksCancel = "tasks/cancel", "Request: cancels a task.";
    TasksUpdate = "tasks/update", "Client request (2026-07-28, extension): answers to a task's questions.";
    TaskStatus = "notifications/tasks/status", "Notification (2025-11-25): the status of a task.";
    TaskNews = "notifications/tasks", "Server notification (2026-07-28, extension): the status of a task.";
}

impl Method {
    /// Whether a server may ask its client something while it serves this request (`docs/bridging.md` 5.1).
    pub(crate) fn may_ask(&self) -> bool {
        matches!(self, Self::ToolsCall | Self::PromptsGet | Self::ResourcesRead | Self::TasksResult)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
