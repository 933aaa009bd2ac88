/// A list whose links are in its elements, from the middle of which one can be taken.
#pragma once

#include "velo/base/check.h"

namespace velo::base {

/// `T` has `T* next` and `T* previous`, and is in one list at a time. Thread: the owner's.
///
/// Conditions are written out. GCC 12 moves a store through `(c ? a : b) = value` out of a loop and loses it.
template <class T>
struct IntrusiveList {
    T* front = nullptr;
    T* back = nullptr;

    [[nodiscard]] bool empty() const { return front == nullptr; }
    void push_back(T& element) {
        VELO_DCHECK((front == nullptr) == (back == nullptr) && back != &element,
                    "an element is here already");
        element.next = nullptr;
        element.previous = back;
        if (back == nullptr) {
            front = &element;
        } else {
            back->next = &element;
        }
        back = &element;
    }
    void push_front(T& element) {
        VELO_DCHECK((front == nullptr) == (back == nullptr) && front != &element,
                    "an element is here already");
        element.next = front;
        element.previous = nullptr;
        if (front == nullptr) {
            back = &element;
        } else {
            front->previous = &element;
        }
        front = &element;
    }
    void remove(T& element) {
        VELO_DCHECK(element.previous == nullptr ? front == &element : element.previous->next == &element,
                    "%s", "an element is in another list");
        if (element.previous == nullptr) {
            front = element.next;
        } else {
            element.previous->next = element.next;
        }
        if (element.next == nullptr) {
            back = element.previous;
        } else {
            element.next->previous = element.previous;
        }
        element.next = element.previous = nullptr;
    }
};

}  // namespace velo::base
