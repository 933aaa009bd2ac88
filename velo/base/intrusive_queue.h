/// First-in first-out queue of elements that carry their own link; neither allocates nor owns.
#pragma once

#include "velo/base/check.h"

namespace velo::base {

/// `T` has a member `T* next`. An element is in at most one queue at a time. Thread: the owner's.
template <class T>
class IntrusiveQueue {
  public:
    [[nodiscard]] bool empty() const { return head_ == nullptr; }
    [[nodiscard]] T* front() const { return head_; }

    void push_back(T* element) {
        VELO_DCHECK(head_ == nullptr || (tail_ != element && tail_->next == nullptr),
                    "an element is here already");
        element->next = nullptr;
        if (head_ == nullptr) {
            head_ = element;
        } else {
            tail_->next = element;
        }
        tail_ = element;
    }

    void push_front(T* element) {
        VELO_DCHECK(head_ != element, "an element is here already");
        element->next = head_;
        if (head_ == nullptr) tail_ = element;
        head_ = element;
    }

    T* pop_front() {
        T* element = head_;
        if (element != nullptr) {
            head_ = element->next;
            element->next = nullptr;
        }
        return element;
    }

    /// Takes out an element that may be anywhere; O(length). No effect when it is not here.
    void remove(T* element) {
        T* before = nullptr;
        for (T* at = head_; at != nullptr; before = at, at = at->next) {
            if (at != element) continue;
            (before == nullptr ? head_ : before->next) = at->next;
            if (tail_ == at) tail_ = before;
            at->next = nullptr;
            return;
        }
    }

  private:
    T* head_ = nullptr;
    T* tail_ = nullptr;
};

}  // namespace velo::base
